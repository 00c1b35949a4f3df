let list = null;
for (;;) list = { list, name: `${Math.random()}` };
