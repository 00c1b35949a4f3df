// What the figures were measured on.

import { readFileSync } from 'node:fs';
import os from 'node:os';

export function machine(dir) {
  const mounts = readFileSync('/proc/mounts', 'utf8').split('\n').map((line) => line.split(' '));
  const holds = mounts.filter((parts) => parts.length > 3 && (dir === parts[1] || dir.startsWith(parts[1].replace(/\/?$/, '/'))));
  const mount = holds.sort((a, b) => b[1].length - a[1].length)[0] ?? [];
  return {
    cpu: os.cpus()[0]?.model ?? 'unknown',
    cores: os.cpus().length,
    memoryGib: Math.round(os.totalmem() / 2 ** 30),
    kernel: os.release(),
    fileSystem: `${mount[2] ?? '?'} (${mount[3] ?? '?'})`,
    loadAtStart: os.loadavg().map((value) => value.toFixed(2)).join(' '),
    node: process.version,
  };
}
