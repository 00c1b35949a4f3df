Error = function () { for (;;) {} };
Error.prototype = null;
TypeError.prototype.message = { toString() { for (;;) {} } };
PermissionError.prototype.name = 'Nobody';
Object.defineProperty(PermissionError, Symbol.hasInstance, { value: () => { throw 1; } });
ctx.publish('a', {});
