// BullMQ on a Redis of its own that appends every change to its file.

import { execFileSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import net from 'node:net';
import path from 'node:path';

import { Contender, Server } from '../contender.mjs';
import { freePort } from '../free_port.mjs';
import { installRedis } from '../install.mjs';
import { peersDir, versionOf } from '../packages.mjs';

export function bullmq(appendfsync) {
  return {
    name: `bullmq-${appendfsync}`,
    title: `BullMQ, appendfsync ${appendfsync}`,
    durable: appendfsync === 'always',
    shapes: ['w1', 'w2', 'w3', 'w4'],
    describe() {
      const { program, env } = installRedis();
      const redis = execFileSync(program, ['--version'], { env: { ...process.env, ...env }, encoding: 'utf8' });
      const version = /v=(\S+)/.exec(redis)?.[1];
      return `BullMQ ${versionOf('bullmq')} on Redis ${version}, appendonly yes, appendfsync ${appendfsync}, no snapshots, `
        + 'one worker, completed jobs removed';
    },
    async start(dir, concurrency) {
      const { program, env } = installRedis();
      mkdirSync(dir, { recursive: true });
      const port = await freePort();
      const settings = [
        '--port', port, '--bind', '127.0.0.1', '--dir', dir, '--appendonly', 'yes', '--appendfsync', appendfsync,
        '--save', '', '--daemonize', 'no',
      ];
      const server = new Server(program, settings.map(String), { env });
      await server.up(() => connects(port));
      const client = path.join(peersDir, 'src/clients/bullmq.mjs');
      const options = { env: { REDIS_PORT: port, CONCURRENCY: concurrency }, servers: [server] };
      return await new Contender(this.title, process.execPath, [client], options).ready();
    },
  };
}

/** Resolves if somebody listens. */
export function connects(port) {
  return new Promise((resolve, reject) => {
    const socket = net.connect(port, '127.0.0.1', () => { socket.destroy(); resolve(); });
    socket.once('error', reject);
  });
}
