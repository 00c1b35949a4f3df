// Restate: one server, the services in the client's process.

import { mkdirSync } from 'node:fs';
import path from 'node:path';

import { Contender, Server } from '../contender.mjs';
import { freePort } from '../free_port.mjs';
import { npmDir, peersDir, versionOf } from '../packages.mjs';

const PARTITIONS = 4;

/**
 * How many tasks of a job are awaited together. Steps were two to ten times slower from 256 on, and 16 to 64 could not be
 * told apart on a busy machine; calls were slower below 256, and 256 to 1,000 could not be told apart.
 */
const BATCH = { steps: 32, calls: 512 };

export function restate(tasks) {
  const batch = Number(process.env.RESTATE_BATCH ?? BATCH[tasks]);
  return {
    name: `restate-${tasks}`,
    title: tasks === 'calls' ? 'Restate, calls' : 'Restate, steps in one handler',
    durable: true,
    shapes: ['w1', 'w2', 'w3', 'w4'],
    describe() {
      const how = tasks === 'calls' ? 'a task is a call of another handler' : 'a task is a ctx.run in the job\'s own handler';
      return `Restate ${versionOf('@restatedev/restate-server')}, SDK ${versionOf('@restatedev/restate-sdk')}, `
        + `${PARTITIONS} partitions, its default durability, ${how}, ${batch} awaited together`;
    },
    async start(dir, concurrency) {
      mkdirSync(dir, { recursive: true });
      const [ingress, admin, fabric] = [await freePort(), await freePort(), await freePort()];
      const env = {
        RESTATE_BASE_DIR: dir,
        RESTATE_LISTEN_MODE: 'tcp',
        RESTATE_BIND_ADDRESS: `127.0.0.1:${fabric}`,
        RESTATE_ADVERTISED_ADDRESS: `http://127.0.0.1:${fabric}`,
        RESTATE_INGRESS__BIND_ADDRESS: `127.0.0.1:${ingress}`,
        RESTATE_ADMIN__BIND_ADDRESS: `127.0.0.1:${admin}`,
        RESTATE_DEFAULT_NUM_PARTITIONS: PARTITIONS,
        RESTATE_DISABLE_TELEMETRY: 'true',
        RUST_LOG: 'error',
      };
      const program = path.join(npmDir, 'node_modules/.bin/restate-server');
      const server = new Server(program, ['--node-name', 'bench'], { env, cwd: dir });
      await server.up(() => healthy(admin, '/health'));
      await server.up(() => healthy(ingress, '/restate/health'));
      const client = path.join(peersDir, 'src/clients/restate.mjs');
      const clientEnv = { INGRESS_PORT: ingress, ADMIN_PORT: admin, CONCURRENCY: concurrency, BATCH: batch, TASKS: tasks, RESTATE_LOGGING: 'ERROR' };
      return await new Contender(this.title, process.execPath, [client], { env: clientEnv, servers: [server] }).ready();
    },
  };
}

async function healthy(port, route) {
  const response = await fetch(`http://127.0.0.1:${port}${route}`);
  if (!response.ok) throw new Error(`${route} answers ${response.status}`);
}
