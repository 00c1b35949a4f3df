Array.prototype[Symbol.iterator] = () => { throw new Error('iterated'); };
Object.getPrototypeOf([][Symbol.iterator] ?? {}).next = null;
console.log(1, 2, 3);
return 'survived';
