// graphile-worker on a PostgreSQL cluster of its own, as initdb makes it: fsync and synchronous_commit are on.

import { execFileSync } from 'node:child_process';
import { chmodSync, chownSync, mkdirSync } from 'node:fs';
import path from 'node:path';

import { Contender, Server } from '../contender.mjs';
import { freePort } from '../free_port.mjs';
import { installPostgres } from '../install.mjs';
import { peersDir, versionOf } from '../packages.mjs';
import { connects } from './bullmq.mjs';

/** W1 rose from 11,000/s at 65 to 20,000/s at 500 and 23,000/s at 2,000, and no further at 10,000. */
const LOCAL_QUEUE = Number(process.env.GRAPHILE_LOCAL_QUEUE ?? 2_000);

export const graphile = {
  name: 'graphile',
  title: 'graphile-worker, local queue, bulk',
  durable: true,
  shapes: ['w1', 'w2'],
  describe() {
    const { bin, env } = installPostgres();
    const version = execFileSync(path.join(bin, 'postgres'), ['--version'], { env: { ...process.env, ...env }, encoding: 'utf8' });
    return `graphile-worker ${versionOf('graphile-worker')} on ${version.trim().replace('postgres (PostgreSQL)', 'PostgreSQL')}, `
      + `local queue of ${LOCAL_QUEUE}, completions in batches, bulk submit, synchronous_commit on; it has no dependencies`;
  },
  async start(dir, concurrency) {
    const { bin, env } = installPostgres();
    const uid = ordinaryUser();
    mkdirSync(dir, { recursive: true });
    const data = path.join(dir, 'data');
    mkdirSync(data);
    chmodSync(data, 0o700);
    if (uid !== undefined) {
      chownSync(dir, uid, uid);
      chownSync(data, uid, uid);
    }
    const asUser = { env: { ...process.env, ...env }, uid, cwd: dir, stdio: ['ignore', 'ignore', 'pipe'] };
    const init = ['-D', data, '-U', 'bench', '--auth=trust', '--encoding=UTF8', '--locale=C', '--no-instructions'];
    execFileSync(path.join(bin, 'initdb'), init, asUser);
    const port = await freePort();
    const settings = ['-D', data, '-p', port, '-h', '127.0.0.1', '-k', dir];
    // A fast shutdown: SIGTERM would wait for the pools of the clients.
    const server = new Server(path.join(bin, 'postgres'), settings.map(String), { env, uid, cwd: dir, stopSignal: 'SIGINT' });
    await server.up(() => connects(port));
    const url = `postgres://bench@127.0.0.1:${port}/postgres`;
    const client = path.join(peersDir, 'src/clients/graphile.mjs');
    const options = { env: { DATABASE_URL: url, CONCURRENCY: concurrency, LOCAL_QUEUE, NODE_ENV: 'production' }, servers: [server] };
    return await new Contender(this.title, process.execPath, [client], options).ready();
  },
};

/** PostgreSQL refuses to run as root; then it runs as this user. */
function ordinaryUser() {
  return process.getuid() === 0 ? Number(execFileSync('id', ['-u', 'nobody'], { encoding: 'utf8' })) : undefined;
}
