// BullMQ's side of the shapes: one queue, one worker with no-op processors in this process.
//
// The fastest fair way we found for each shape:
// - W1: one addBulk of all tasks, no parent; done when the worker has reported the last one.
// - W2: one flow, each job the parent of the one before it, so that Redis itself releases the next.
// - W3, W4: a flow is a tree, so a fan-out from a first task cannot be declared. The first task's processor adds the flow
//   of the middle tasks and their join, which is how BullMQ's users do it. W4's first tasks come by one addBulk.
// All jobs are in one queue (a finished job then fetches the next in the same script) and are removed when completed.

import { load } from '../packages.mjs';
import { answer, countdown } from './answers.mjs';

const { FlowProducer, Queue, Worker } = await load('bullmq');
const connection = { host: '127.0.0.1', port: Number(process.env.REDIS_PORT), maxRetriesPerRequest: null };
const concurrency = Number(process.env.CONCURRENCY);
const queueName = 'shapes';
const opts = { removeOnComplete: true };

const queue = new Queue(queueName, { connection });
const flows = new FlowProducer({ connection });
let waiting = countdown(0);
let moments = [];
/** The name of the jobs whose completion counts. */
let counted = '';

const worker = new Worker(
  queueName,
  async (job) => {
    if (job.name === 'hop') moments.push(performance.now());
    if (job.name === 'head') await flows.add(fan(job.data.breadth));
  },
  { connection, concurrency },
);
worker.on('completed', (job) => { if (job.name === counted) waiting.count(); });
worker.on('failed', (job, error) => waiting.fail(error));
worker.on('error', (error) => waiting.fail(error));
await Promise.all([queue.waitUntilReady(), flows.waitUntilReady(), worker.waitUntilReady()]);

function fan(breadth) {
  const children = Array.from({ length: breadth }, (_, index) => ({ name: 'noop', queueName, data: { index }, opts }));
  return { name: 'join', queueName, data: {}, opts, children };
}

/** Expects `times` completions of jobs of one name. */
function expect(name, times) {
  counted = name;
  waiting = countdown(times);
  moments = [];
}

await answer(
  {
    async w1(count) {
      expect('noop', count);
      await queue.addBulk(Array.from({ length: count }, (_, index) => ({ name: 'noop', data: { index }, opts })));
      await waiting.done;
    },
    async w2(count) {
      expect('hop', count);
      let flow = null;
      for (let index = 0; index < count; index += 1) {
        flow = { name: 'hop', queueName, data: { index }, opts, children: flow ? [flow] : undefined };
      }
      await flows.add(flow);
      await waiting.done;
      return moments;
    },
    async w3(count) {
      expect('join', 1);
      await queue.add('head', { breadth: count }, opts);
      await waiting.done;
    },
    async w4(count) {
      expect('join', count);
      await queue.addBulk(Array.from({ length: count }, () => ({ name: 'head', data: { breadth: 3 }, opts })));
      await waiting.done;
    },
  },
  async () => {
    await worker.close();
    await flows.close();
    await queue.close();
  },
);
