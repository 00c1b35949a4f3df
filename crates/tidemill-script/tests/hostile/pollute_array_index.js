// Writes to arrays land in the script.
for (let i = 0; i < 10; i++) {
    Object.defineProperty(Array.prototype, i, { set() { throw new Error('caught'); }, get() { return 'owned'; } });
}
Object.defineProperty(Object.prototype, 'name', { get() { throw new Error('caught'); } });
console.log('x', 1, {});
ctx.publish('a', {});
