const held = [];
for (;;) held.push(Symbol(`s${held.length}`));
