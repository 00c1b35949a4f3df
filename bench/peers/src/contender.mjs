// A contender: a client process that runs one shape when asked, and the server processes behind it.
//
// The client answers {millis, cpuMicros, hopsMillis}; what its servers used meanwhile is read here and added.

import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';

import { treeCpuMicros } from './cpu.mjs';

/** The longest that one round of one shape may take. */
const ROUND_MILLIS_MAX = 180_000;
const STOP_MILLIS_MAX = 15_000;

export class Contender {
  constructor(name, command, args, { env = {}, servers = [] } = {}) {
    this.name = name;
    this.servers = servers;
    this.child = spawn(command, args, { env: { ...process.env, ...env }, stdio: ['pipe', 'pipe', 'inherit'] });
    this.lines = createInterface({ input: this.child.stdout })[Symbol.asyncIterator]();
  }

  /** Resolves once the client can be asked. */
  async ready() {
    await this.#answer();
    return this;
  }

  async run(shape, count) {
    const serverPids = this.servers.map((server) => server.child.pid);
    const before = treeCpuMicros(serverPids);
    this.child.stdin.write(`${JSON.stringify({ shape, count })}\n`);
    const answer = await this.#answer();
    const serverMicros = treeCpuMicros(serverPids) - before;
    return { ...answer, cpuMicros: answer.cpuMicros + serverMicros };
  }

  async #answer() {
    let timer;
    const late = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error(`${this.name} did not answer in time`)), ROUND_MILLIS_MAX);
    });
    try {
      const { value, done } = await Promise.race([this.lines.next(), late]);
      if (done) throw new Error(`${this.name} ended before it answered`);
      const answer = JSON.parse(value);
      if (answer.error) throw new Error(`${this.name}: ${answer.error}`);
      return answer;
    } finally {
      clearTimeout(timer);
    }
  }

  async stop() {
    this.child.stdin.end();
    await ended(this.child, 'SIGTERM');
    for (const server of this.servers) await server.stop();
  }
}

/** A server that was started for a contender. */
export class Server {
  constructor(command, args, { env = {}, cwd, uid, stopSignal = 'SIGTERM' } = {}) {
    this.stopSignal = stopSignal;
    this.output = '';
    this.child = spawn(command, args, { env: { ...process.env, ...env }, cwd, uid, stdio: ['ignore', 'pipe', 'pipe'] });
    for (const stream of [this.child.stdout, this.child.stderr]) {
      stream.setEncoding('utf8').on('data', (text) => { this.output = (this.output + text).slice(-4_000); });
    }
  }

  /** Asks again and again until `isUp` answers without an error. */
  async up(isUp) {
    for (let left = 600; ; left -= 1) {
      try {
        return await isUp();
      } catch (error) {
        const over = left === 0 || this.child.exitCode !== null;
        if (over) throw new Error(`the server did not come up: ${error.message}\n${this.output}`);
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }
  }

  async stop() {
    this.child.kill(this.stopSignal);
    await ended(this.child, 'SIGKILL');
  }
}

/** Waits for the end of a process that was asked to end, and insists after a while. */
async function ended(child, insist) {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = new Promise((resolve) => child.once('exit', resolve));
  const timer = setTimeout(() => child.kill(insist), STOP_MILLIS_MAX);
  await exit;
  clearTimeout(timer);
}
