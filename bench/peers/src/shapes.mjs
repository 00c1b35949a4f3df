// The shapes, how a round of each becomes a figure, and what Tidemill must reach beside each peer.

/** The value below which this part of all lies. */
export function quantile(values, part) {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted.length === 0 ? NaN : sorted[Math.round((sorted.length - 1) * part)];
}

/** The value below which half of all lies. */
export function median(values) {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  if (sorted.length === 0) return NaN;
  return sorted.length % 2 === 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

const perSecond = (answer, count) => (count * 1_000) / answer.millis;

export const shapes = {
  w1: {
    title: (count) => `W1 one job of ${count.toLocaleString('en')} root tasks`,
    unit: 'tasks/s',
    count: { full: 10_000, quick: 2_000 },
    tasks: (count) => count,
    value: perSecond,
    higherIsBetter: true,
  },
  w2: {
    title: (count) => `W2 chain of ${count}, per hop, p50`,
    unit: 'ms',
    count: { full: 100, quick: 100 },
    tasks: (count) => count,
    value: (answer) => median(answer.hopsMillis),
    higherIsBetter: false,
  },
  w3: {
    title: (count) => `W3 1 → ${count.toLocaleString('en')} → 1`,
    unit: 'ms',
    count: { full: 1_000, quick: 300 },
    tasks: (count) => count + 2,
    value: (answer) => answer.millis,
    higherIsBetter: false,
  },
  w4: {
    title: (count) => `W4 ${count} diamond jobs of 5 tasks`,
    unit: 'jobs/s',
    count: { full: 500, quick: 150 },
    tasks: (count) => count * 5,
    value: perSecond,
    higherIsBetter: true,
  },
};

/** What the ratio of Tidemill to a peer must be, or null where nothing is asked. */
export function goalOf(shape, peer) {
  const asked = {
    w1: { 'bullmq-always': { bound: 3, moonshot: 8 }, graphile: { bound: 1 } },
    w2: { 'bullmq-always': { bound: 1 / 3 }, 'restate-calls': { bound: 1 / 10 } },
  }[shape];
  if (asked) return asked[peer.name] ?? null;
  // The best durable peer is beaten if each of them is.
  if (!peer.durable) return null;
  return shape === 'w3' ? { bound: 1 / 3, moonshot: 1 / 8 } : { bound: 3, moonshot: 6 };
}

/** How a ratio stands to its goal: met, and beyond the moonshot. */
export function judge(goal, ratio, higherIsBetter) {
  const reaches = (bound) => (higherIsBetter ? ratio >= bound : ratio <= bound);
  return { met: reaches(goal.bound), moonshot: goal.moonshot !== undefined && reaches(goal.moonshot) };
}

/** A hop of Tidemill's chain may cost so much above one bare commit. */
export const HOP_ABOVE_COMMIT_MILLIS_MAX = 0.3;

/**
 * Whether bare commits can be a control. On a calm machine they lie close together. Beside others' builds their median
 * rose to 4 ms, above that of whole hops: nine tenths of it was waiting for a CPU. A difference to that would flatter us.
 */
export function isSteady(commits) {
  return median(commits) <= CONTROL_SPREAD_MAX * quantile(commits, 0.1);
}

const CONTROL_SPREAD_MAX = 1.5;
