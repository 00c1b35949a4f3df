JSON.stringify = () => { throw new Error('patched'); };
JSON.parse = JSON.stringify;
String.prototype.slice = String.prototype.toWellFormed = Function.prototype.call = JSON.stringify;
Function.prototype.bind = Function.prototype.apply = JSON.stringify;
Symbol.prototype.toString = JSON.stringify;
console.log('x'.repeat(9000), Symbol('s'), { a: 1 });
return 'survived';
