// Brings the peers below `target/`: npm packages at the versions of package.json, Debian packages unpacked and not
// installed, so that no service starts and nothing outside this folder changes.

import { execFileSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';

import { debianDir, npmDir, peersDir } from './packages.mjs';

/** Redis as Debian builds it, with the libraries it is linked to. */
const REDIS = [
  'redis-server', 'redis-tools', 'libjemalloc2', 'liblzf1', 'libhiredis0.14', 'liblua5.1-0', 'lua-bitop', 'lua-cjson',
  'libatomic1',
];
const POSTGRES = ['postgresql-15', 'libpq5'];

function run(command, args, cwd) {
  execFileSync(command, args, { cwd, stdio: ['ignore', 'ignore', 'inherit'] });
}

export function installNpm() {
  const wanted = readFileSync(path.join(peersDir, 'package.json'), 'utf8');
  const stamp = path.join(npmDir, 'installed');
  if (existsSync(stamp) && readFileSync(stamp, 'utf8') === wanted) return;
  console.error('installing the npm packages of the peers');
  mkdirSync(npmDir, { recursive: true });
  copyFileSync(path.join(peersDir, 'package.json'), path.join(npmDir, 'package.json'));
  // The native parts come as packages of their own, so no install script is needed.
  run('npm', ['install', '--no-package-lock', '--no-audit', '--no-fund', '--ignore-scripts', '--loglevel=error'], npmDir);
  writeFileSync(stamp, wanted);
}

function unpackDebian(name, packages) {
  const dir = path.join(debianDir, name);
  const stamp = path.join(dir, 'installed');
  if (existsSync(stamp)) return dir;
  console.error(`unpacking Debian's ${packages[0]}`);
  rmSync(dir, { recursive: true, force: true });
  const downloads = path.join(dir, 'packages');
  mkdirSync(downloads, { recursive: true });
  try {
    run('apt-get', ['download', ...packages], downloads);
  } catch {
    run('apt-get', ['update', '-qq'], downloads);
    run('apt-get', ['download', ...packages], downloads);
  }
  for (const file of readdirSync(downloads)) run('dpkg', ['-x', path.join(downloads, file), dir], dir);
  writeFileSync(stamp, '');
  return dir;
}

/** The redis-server program and the environment it needs. */
export function installRedis() {
  const dir = unpackDebian('redis', REDIS);
  return { program: path.join(dir, 'usr/bin/redis-server'), env: { LD_LIBRARY_PATH: libraries(dir) } };
}

/** The folder of the PostgreSQL programs: the one of this machine if there is one, otherwise unpacked. */
export function installPostgres() {
  const root = '/usr/lib/postgresql';
  const found = existsSync(root) ? readdirSync(root).filter((v) => existsSync(`${root}/${v}/bin/postgres`)) : [];
  if (found.length > 0) {
    const newest = found.sort((a, b) => Number(b) - Number(a))[0];
    return { bin: `${root}/${newest}/bin`, env: {} };
  }
  const dir = unpackDebian('postgres', POSTGRES);
  return { bin: path.join(dir, 'usr/lib/postgresql/15/bin'), env: { LD_LIBRARY_PATH: libraries(dir) } };
}

function libraries(dir) {
  const lib = path.join(dir, 'usr/lib');
  const triplets = readdirSync(lib).filter((name) => name.includes('linux-gnu')).map((name) => path.join(lib, name));
  return [...triplets, lib].join(':');
}
