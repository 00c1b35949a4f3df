// Restate's side of the shapes: the services in this process, called through the server.
//
// Every job is one invocation of `job`, which awaits its tasks in the order the graph asks for. With TASKS=calls a task is a
// call of another handler, with TASKS=steps it is a `ctx.run` inside the same handler. W4's jobs are started with 64
// requests under way at a time.

import http from 'node:http';
import http2 from 'node:http2';

import { load } from '../packages.mjs';
import { answer } from './answers.mjs';

// The SDK asks for Node 22; this is the only thing of it that Node 20 lacks.
Promise.withResolvers ??= function withResolvers() {
  let resolve;
  let reject;
  const promise = new this((yes, no) => { resolve = yes; reject = no; });
  return { promise, resolve, reject };
};

const restate = await load('@restatedev/restate-sdk');
const ingress = Number(process.env.INGRESS_PORT);
const admin = Number(process.env.ADMIN_PORT);
const concurrency = Number(process.env.CONCURRENCY);
const batch = Number(process.env.BATCH);
const byCalls = process.env.TASKS === 'calls';
let moments = [];

const noop = restate.service({
  name: 'noop',
  handlers: { run: async () => { moments.push(performance.now()); return {}; } },
});

/** Starts one task of a job. */
function start(ctx) {
  if (byCalls) return ctx.serviceClient({ name: 'noop' }).run({});
  return ctx.run(() => { moments.push(performance.now()); return {}; });
}

/** Runs `count` tasks side by side, `batch` at a time. */
async function together(ctx, count) {
  for (let done = 0; done < count;) {
    const some = Math.min(batch, count - done);
    await restate.RestatePromise.all(Array.from({ length: some }, () => start(ctx)));
    done += some;
  }
}

const job = restate.service({
  name: 'job',
  handlers: {
    roots: async (ctx, { count }) => { await together(ctx, count); return {}; },
    chain: async (ctx, { count }) => {
      for (let hop = 0; hop < count; hop += 1) await start(ctx);
      return {};
    },
    fan: async (ctx, { count }) => {
      await start(ctx);
      await together(ctx, count);
      await start(ctx);
      return {};
    },
  },
});

const server = http2.createServer(restate.endpoint().bind(noop).bind(job).http2Handler());
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));

const agent = new http.Agent({ keepAlive: true, maxSockets: concurrency });

function post(port, path, body) {
  const text = JSON.stringify(body);
  return new Promise((resolve, reject) => {
    const headers = { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) };
    const request = http.request({ host: '127.0.0.1', port, path, method: 'POST', agent, headers }, (response) => {
      let answered = '';
      response.setEncoding('utf8').on('data', (part) => { answered += part; });
      response.on('end', () => {
        if (response.statusCode < 300) resolve(answered);
        else reject(new Error(`${path} answered ${response.statusCode}: ${answered}`));
      });
      response.on('error', reject);
    });
    request.on('error', reject);
    request.end(text);
  });
}

await post(admin, '/deployments', { uri: `http://127.0.0.1:${server.address().port}` });
const invoke = (handler, count) => post(ingress, `/job/${handler}`, { count });

await answer(
  {
    async w1(count) { await invoke('roots', count); },
    async w2(count) {
      moments = [];
      await invoke('chain', count);
      return moments;
    },
    async w3(count) { await invoke('fan', count); },
    async w4(count) {
      let next = 0;
      const submit = async () => {
        while (next < count) {
          next += 1;
          await invoke('fan', 3);
        }
      };
      await Promise.all(Array.from({ length: Math.min(concurrency, count) }, submit));
    },
  },
  async () => { agent.destroy(); server.close(); },
);
