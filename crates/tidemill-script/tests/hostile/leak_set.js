// Leaves all it can behind.
globalThis.leak = 'left';
Object.prototype.leak = 'left';
Array.prototype.push = () => 'left';
String.prototype.leak = 'left';
Date.now = () => 'left';
Math.random = () => 'left';
console.log = () => 'left';
Symbol.for('leak').description;
Error.prototype.leak = 'left';
globalThis.JSON = { stringify: () => '"left"', parse: () => 'left' };
(function () { leaked: for (;;) break leaked; })();
queueMicrotask(() => { globalThis.later = 'left'; });
return 'set';
