const held = new Map();
for (let i = 0; ; i++) held.set({ i }, `value ${i}`);
