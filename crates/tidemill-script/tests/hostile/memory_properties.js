const held = {};
for (let i = 0; ; i++) held[`p${i}`] = i;
