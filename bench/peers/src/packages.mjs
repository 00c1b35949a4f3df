// Where the peers are installed, and how their modules are loaded from there.

import { createRequire } from 'node:module';
import { readFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';

export const peersDir = path.resolve(path.dirname(fileURLToPath(import.meta.url)), '..');
export const repository = path.resolve(peersDir, '../..');
export const target = path.join(peersDir, 'target');
export const npmDir = path.join(target, 'npm');
export const debianDir = path.join(target, 'debian');

const require = createRequire(path.join(npmDir, 'package.json'));

/** A module of an installed package. */
export async function load(name) {
  return await import(pathToFileURL(require.resolve(name)).href);
}

/** The version of an installed package. */
export function versionOf(name) {
  const manifest = path.join(npmDir, 'node_modules', name, 'package.json');
  return JSON.parse(readFileSync(manifest, 'utf8')).version;
}
