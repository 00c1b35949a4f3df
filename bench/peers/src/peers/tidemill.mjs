// Tidemill itself: the core bench's binary, as a program that embeds the library.

import { execFileSync } from 'node:child_process';
import { mkdirSync } from 'node:fs';
import path from 'node:path';

import { Contender } from '../contender.mjs';
import { repository } from '../packages.mjs';

const target = path.join(repository, 'bench/target');
const program = process.env.TIDEMILL_BENCH ?? path.join(target, 'release/tidemill-bench');

export function buildTidemill() {
  if (process.env.TIDEMILL_BENCH) return;
  const env = { ...process.env, CARGO_TARGET_DIR: target };
  const manifest = ['--manifest-path', path.join(repository, 'bench/core/Cargo.toml')];
  execFileSync('cargo', ['build', '--release', '--quiet', ...manifest], { env, stdio: ['ignore', 'inherit', 'inherit'] });
}

export async function startTidemill(dir, concurrency) {
  mkdirSync(dir, { recursive: true });
  return await new Contender('Tidemill', program, ['peers-shapes', '--dir', dir, '--slots', String(concurrency)]).ready();
}
