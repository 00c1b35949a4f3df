// Waiting does not use what it replaced.
Promise.prototype.then = () => { for (;;) {} };
Promise.resolve = null;
globalThis.Promise = null;
return await (async () => 'survived')();
