let deep = {};
for (let i = 0; i < 2e5; i++) deep = { deep };
return deep;
