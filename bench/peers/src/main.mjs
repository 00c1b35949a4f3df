// Runs the shapes on Tidemill and on each peer in turns and prints one table.

import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';

import { machineCpu } from './cpu.mjs';
import { installNpm } from './install.mjs';
import { machine } from './machine.mjs';
import { target } from './packages.mjs';
import { HOP_ABOVE_COMMIT_MILLIS_MAX, goalOf, isSteady, judge, median, shapes } from './shapes.mjs';
import { fixed, table } from './table.mjs';

const USAGE = 'usage: bench/peers/run [--quick] [--json FILE] [--only PEER,PEER,…] [--shapes w1,w2,…] [--rounds N] [--dir D]\n'
  + 'peers: bullmq-always, bullmq-everysec, restate-calls, restate-steps, graphile';
/** Where others took more of the CPU than this, a verdict is marked as one of a busy machine. */
const OTHERS_SHARE_MAX = 0.25;
/** How many tasks run at a time, for all. */
const CONCURRENCY = 64;
/** The bare commits that are timed before and after each chain. */
const COMMITS = 100;

function parse(argv) {
  const options = { quick: false, json: null, only: null, shapes: Object.keys(shapes), rounds: null, dir: path.join(target, 'run') };
  for (let rest = [...argv]; rest.length > 0;) {
    const flag = rest.shift();
    const value = () => rest.shift() ?? fail(`${flag} needs a value`);
    if (flag === '--quick') options.quick = true;
    else if (flag === '--json') options.json = value();
    else if (flag === '--only') options.only = value().split(',');
    else if (flag === '--shapes') options.shapes = value().split(',');
    else if (flag === '--rounds') options.rounds = Number(value());
    else if (flag === '--dir') options.dir = path.resolve(value());
    else fail(`unknown argument ${flag}`);
  }
  options.rounds ??= options.quick ? 2 : 7;
  if (!(options.rounds >= 1)) fail('--rounds needs a number');
  const unknown = options.shapes.find((name) => !shapes[name]);
  if (unknown) fail(`unknown shape ${unknown}`);
  return options;
}

function fail(problem) {
  console.error(`${problem}\n${USAGE}`);
  process.exit(1);
}

/** One peer beside a fresh Tidemill, round by round. */
async function phase(peer, startTidemill, options) {
  const dir = path.join(options.dir, peer.name);
  rmSync(dir, { recursive: true, force: true });
  const wanted = options.shapes.filter((name) => peer.shapes.includes(name));
  const found = [];
  const commits = [];
  let tidemill;
  let other;
  try {
    tidemill = await startTidemill(path.join(dir, 'tidemill'), CONCURRENCY);
    other = await peer.start(path.join(dir, 'peer'), CONCURRENCY);
    for (const name of wanted) {
      const shape = shapes[name];
      const count = shape.count[options.quick ? 'quick' : 'full'];
      // Nobody is judged by the first steps of its compiler.
      for (const side of [tidemill, other]) await side.run(name, Math.min(count, 100));
      const rounds = [];
      const before = machineCpu();
      for (let round = 0; round < options.rounds; round += 1) {
        // Before and after the chain, so that a disturbance of either shows.
        const bare = async () => (name === 'w2' ? (await tidemill.run('commit', COMMITS)).hopsMillis : []);
        const first = await bare();
        const ours = await tidemill.run(name, count);
        const commitsNow = [...first, ...(await bare())];
        commits.push(...commitsNow);
        const theirs = await other.run(name, count);
        rounds.push({ ours: figure(shape, ours, count), theirs: figure(shape, theirs, count), commits: commitsNow });
      }
      found.push({ name, count, rounds, othersShare: othersShare(before, rounds) });
      const [ours, theirs] = ['ours', 'theirs'].map((side) => fixed(median(rounds.map((round) => round[side].value))));
      console.error(`  ${name}: ${peer.title} ${theirs}, Tidemill ${ours} ${shape.unit}`);
    }
  } finally {
    await other?.stop();
    await tidemill?.stop();
    rmSync(dir, { recursive: true, force: true });
  }
  return { peer, found, commits };
}

function figure(shape, answer, count) {
  return { value: shape.value(answer, count), cpuMicros: answer.cpuMicros, tasks: shape.tasks(count) };
}

/** How much of the machine's CPU went to others or was stolen by its host meanwhile, 0 to 1. */
function othersShare(before, rounds) {
  const after = machineCpu();
  const own = rounds.reduce((sum, round) => sum + round.ours.cpuMicros + round.theirs.cpuMicros, 0) / 1e6;
  return Math.max(0, (after.busy - before.busy - own) / Math.max(after.total - before.total, 0.01));
}

/** Rounds of a chain whose bare commits were steady; if most were not, the machine was too busy to judge latencies by. */
function steadyRounds(rounds) {
  const steady = rounds.filter((round) => isSteady(round.commits));
  return { steady, enough: steady.length * 2 > rounds.length, said: `bare commits were steady in ${steady.length} of ${rounds.length} rounds only` };
}

function rowOf(peer, { name, count, rounds: all, othersShare: share }) {
  const shape = shapes[name];
  const goal = goalOf(name, peer);
  const { steady, enough, said } = name === 'w2' ? steadyRounds(all) : { steady: all, enough: true };
  const rounds = enough ? steady : all;
  const ratio = median(rounds.map((round) => round.ours.value / round.theirs.value));
  const judged = goal && enough ? judge(goal, ratio, shape.higherIsBetter) : { met: null, moonshot: false };
  const doubt = goal && !enough ? `; not judged: ${said}` : '';
  const sign = shape.higherIsBetter ? '≥' : '≤';
  const moonshot = goal?.moonshot ? ` (moonshot ${fixed(goal.moonshot)})` : '';
  return {
    shape: shape.title(count),
    peer: peer.title,
    unit: shape.unit,
    ...side('peer', rounds.map((round) => round.theirs)),
    ...side('tidemill', rounds.map((round) => round.ours)),
    ratio,
    goal: goal ? `${sign} ${fixed(goal.bound)} ×${moonshot}${doubt}` : null,
    ...judged,
    busy: share > OTHERS_SHARE_MAX,
  };
}

function side(name, figures) {
  const sum = (field) => figures.reduce((total, one) => total + one[field], 0);
  return { [`${name}Value`]: median(figures.map((one) => one.value)), [`${name}CpuMicros`]: sum('cpuMicros') / sum('tasks') };
}

/** A hop of Tidemill's own above the bare commits around it, as far as those can be trusted. */
function hopRow(phases) {
  const chains = phases.flatMap(({ found }) => found.filter(({ name }) => name === 'w2'));
  const rounds = chains.flatMap((chain) => chain.rounds);
  if (rounds.length === 0) return [];
  const { steady, enough, said: why } = steadyRounds(rounds);
  const above = median(steady.map((round) => round.ours.value - median(round.commits)));
  const judged = enough ? { met: above <= HOP_ABOVE_COMMIT_MILLIS_MAX, moonshot: false } : { met: null, moonshot: false };
  const said = enough ? `is ${fixed(above)}` : `not judged: ${why}`;
  const used = enough ? steady : rounds;
  return [{
    shape: 'W2 a hop above one bare commit',
    peer: 'bare write and fdatasync',
    unit: 'ms',
    peerValue: median(used.map((round) => median(round.commits))),
    peerCpuMicros: null,
    ...side('tidemill', used.map((round) => round.ours)),
    ratio: null,
    goal: `≤ ${HOP_ABOVE_COMMIT_MILLIS_MAX} ms above; ${said}`,
    ...judged,
  }];
}

async function main() {
  const options = parse(process.argv.slice(2));
  installNpm();
  // These load what was just installed.
  const [{ bullmq }, { restate }, { graphile }, { buildTidemill, startTidemill }] = await Promise.all([
    import('./peers/bullmq.mjs'), import('./peers/restate.mjs'), import('./peers/graphile.mjs'), import('./peers/tidemill.mjs'),
  ]);
  const all = [bullmq('always'), bullmq('everysec'), restate('calls'), restate('steps'), graphile];
  const unknown = options.only?.find((name) => !all.some((peer) => peer.name === name));
  if (unknown) fail(`unknown peer ${unknown}`);
  const peers = all.filter((peer) => !options.only || options.only.includes(peer.name));
  buildTidemill();
  mkdirSync(options.dir, { recursive: true });
  const settings = [
    `Tidemill as a library with ${CONCURRENCY} slots, default settings; every answer waits for fdatasync`,
    ...peers.map((peer) => peer.describe()),
    `Concurrency ${CONCURRENCY}, no-op handlers in the client's process, ${options.rounds} rounds in turns after a warm-up, `
      + `medians, ratios by neighbouring rounds, CPU of clients and servers${options.quick ? '; QUICK run, smaller shapes' : ''}`,
  ];
  const report = { machine: machine(options.dir), settings, rows: [], commitMillis: NaN, failures: [], phases: [] };
  for (const peer of peers) {
    console.error(peer.title);
    try {
      report.phases.push(await phase(peer, startTidemill, options));
    } catch (error) {
      // The others still count; the run as a whole has failed.
      console.error(`  failed: ${error.message}`);
      report.failures.push(`${peer.title}: ${error.message.split('\n')[0]}`);
    }
  }
  report.rows = [
    ...options.shapes.flatMap((name) => report.phases.flatMap(({ peer, found }) => found
      .filter((one) => one.name === name).map((one) => rowOf(peer, one)))),
    ...hopRow(report.phases),
  ];
  report.commitMillis = median(report.phases.flatMap(({ commits }) => commits));
  const shares = report.phases.flatMap(({ found }) => found.map((one) => one.othersShare));
  if (shares.length > 0) settings.push(`Others took ${Math.round(median(shares) * 100)} % of the CPU meanwhile (median of all rows)`);
  settings.push(...report.failures.map((failure) => `FAILED ${failure}`));
  console.log(table(report));
  if (options.json) writeFileSync(options.json, `${JSON.stringify(report, null, 2)}\n`);
  process.exit(report.failures.length > 0 ? 1 : 0);
}

await main();
