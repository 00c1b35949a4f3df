const held = [];
for (;;) held.push(new Uint8Array(1e6).fill(1));
