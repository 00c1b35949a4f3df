// Calls itself while its arguments are written.
const data = { toJSON() { ctx.publish('again', data); return {}; } };
ctx.publish('first', data);
