const evil = { toString() { throw 1; }, valueOf() { throw 2; }, [Symbol.toPrimitive]() { throw 3; }, get x() { throw 4; } };
console.log(evil, [evil], Object.create(null), new Proxy({}, { ownKeys() { throw 5; } }), Symbol.iterator, 1n);
console.log.call(null, 'detached');
const { warn } = console;
warn('loose');
return 'survived';
