// The client's side of the talk with the driver: one request per line, one answer per line.

import { createInterface } from 'node:readline';

/** Runs shapes until standard input ends. A shape is an async function of its count; it returns moments of hops or nothing. */
export async function answer(shapes, close) {
  say({ ready: true });
  for await (const line of createInterface({ input: process.stdin })) {
    const { shape, count } = JSON.parse(line);
    try {
      const cpu = process.cpuUsage();
      const start = performance.now();
      const moments = (await shapes[shape](count)) ?? [];
      const millis = performance.now() - start;
      const { user, system } = process.cpuUsage(cpu);
      const hopsMillis = moments.slice(1).map((moment, index) => moment - moments[index]);
      say({ millis, cpuMicros: user + system, hopsMillis });
    } catch (error) {
      say({ error: `${shape}: ${error.stack}` });
    }
  }
  await close();
  process.exit(0);
}

function say(value) {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

/** Resolves when `count` has been called `times` times. */
export function countdown(times) {
  let left = times;
  let resolve;
  let reject;
  const done = new Promise((yes, no) => { resolve = yes; reject = no; });
  if (left === 0) resolve();
  return { done, fail: reject, count() { left -= 1; if (left === 0) resolve(); } };
}
