const held = [];
for (;;) held.push('x'.padEnd(1e7, held.length + 'y').slice(1));
