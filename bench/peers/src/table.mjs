// The report as Markdown.

export function table(report) {
  const { machine } = report;
  const out = [
    `Machine: ${machine.cores} × ${machine.cpu}, ${machine.memoryGib} GiB, Linux ${machine.kernel}, ${machine.fileSystem}; `
      + `load at start ${machine.loadAtStart}; Node ${machine.node}.`,
    `Bare write and fdatasync of 1.5 kB: p50 ${fixed(report.commitMillis)} ms.`,
    ...report.settings.map((line) => `${line}.`),
    '',
    '| shape | peer | peer | CPU per task | Tidemill | CPU per task | ratio | goal | met |',
    '| --- | --- | ---: | ---: | ---: | ---: | ---: | --- | --- |',
  ];
  for (const row of report.rows) {
    out.push(`| ${[
      row.shape,
      row.peer,
      `${fixed(row.peerValue)} ${row.unit}`,
      row.peerCpuMicros === null ? '' : `${fixed(row.peerCpuMicros)} µs`,
      `${fixed(row.tidemillValue)} ${row.unit}`,
      `${fixed(row.tidemillCpuMicros)} µs`,
      row.ratio === null ? '' : fixed(row.ratio),
      row.goal ?? '',
      row.met === null ? '' : verdict(row),
    ].join(' | ')} |`);
  }
  return out.join('\n');
}

function verdict({ met, moonshot, busy }) {
  const reached = moonshot ? 'yes, moonshot' : 'yes';
  return `${met ? reached : '**no**'}${busy ? ' (busy machine)' : ''}`;
}

export function fixed(value) {
  if (!Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  if (size >= 100) return Math.round(value).toLocaleString('en');
  if (size >= 10) return value.toFixed(1);
  return size >= 0.1 ? value.toFixed(2) : value.toFixed(3);
}
