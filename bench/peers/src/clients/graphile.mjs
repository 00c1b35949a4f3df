// graphile-worker's side of the shapes: one runner with no-op tasks in this process.
//
// The fastest way we found: local queue, completions in batches without a delay, bulk submit through add_jobs in one
// statement. It has no dependencies between jobs, so there is no W3 and no W4; a hop of W2 is a task that adds the next one.

import { load } from '../packages.mjs';
import { answer, countdown } from './answers.mjs';

const { Logger, makeWorkerUtils, run } = await load('graphile-worker');
const concurrency = Number(process.env.CONCURRENCY);
let waiting = countdown(0);
let moments = [];

const runner = await run({
  preset: {
    worker: {
      connectionString: process.env.DATABASE_URL,
      concurrentJobs: concurrency,
      maxPoolSize: 10,
      pollInterval: 1_000,
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
      // Far larger than the advice of concurrency + 1: each refill is a round trip.
      localQueue: { size: Number(process.env.LOCAL_QUEUE) },
      logger: new Logger(() => () => {}),
    },
  },
  taskList: {
    noop: async () => {},
    hop: async ({ left }, helpers) => {
      moments.push(performance.now());
      if (left > 1) await helpers.addJob('hop', { left: left - 1 });
    },
  },
});
const utils = await makeWorkerUtils({ connectionString: process.env.DATABASE_URL });
runner.events.on('job:complete', ({ error }) => (error ? waiting.fail(error) : waiting.count()));

await answer(
  {
    async w1(count) {
      waiting = countdown(count);
      const specs = Array.from({ length: count }, (_, index) => ({ identifier: 'noop', payload: { index } }));
      await utils.addJobs(specs);
      await waiting.done;
    },
    async w2(count) {
      waiting = countdown(count);
      moments = [];
      await utils.addJob('hop', { left: count });
      await waiting.done;
      return moments;
    },
  },
  async () => {
    await runner.stop();
    await utils.release();
  },
);
