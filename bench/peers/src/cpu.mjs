// CPU time of processes and everything below them.

import { readFileSync, readdirSync } from 'node:fs';

const TICKS_PER_SECOND = 100;

/** User and system time of these processes and their descendants, ended children included, in microseconds. */
export function treeCpuMicros(roots) {
  const processes = readAll();
  let ticks = 0;
  const queue = [...roots];
  for (const seen = new Set(); queue.length > 0;) {
    const pid = queue.pop();
    const found = processes.get(pid);
    if (!found || seen.has(pid)) continue;
    seen.add(pid);
    ticks += found.ticks;
    for (const [child, { parent }] of processes) if (parent === pid) queue.push(child);
  }
  return (ticks * 1e6) / TICKS_PER_SECOND;
}

function readAll() {
  const processes = new Map();
  for (const name of readdirSync('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    try {
      const text = readFileSync(`/proc/${name}/stat`, 'utf8');
      // The second field is a name in brackets that may hold anything.
      const fields = text.slice(text.lastIndexOf(')') + 2).split(' ');
      // utime, stime, and the same of children that were waited for.
      const ticks = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0);
      processes.set(Number(name), { parent: Number(fields[1]), ticks });
    } catch {
      // It ended meanwhile.
    }
  }
  return processes;
}

/** The part of all CPU time since `before` (an answer of this function) that was used or stolen, in seconds. */
export function machineCpu() {
  const ticks = readFileSync('/proc/stat', 'utf8').split('\n')[0].split(/\s+/).slice(1, 9).map(Number);
  const total = ticks.reduce((sum, value) => sum + value, 0);
  return { total: total / TICKS_PER_SECOND, busy: (total - ticks[3] - ticks[4]) / TICKS_PER_SECOND };
}
