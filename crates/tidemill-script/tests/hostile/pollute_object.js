Object.prototype.toJSON = function () { return 'owned'; };
Object.prototype.then = undefined;
Object.prototype.get = () => 1;
Object.prototype.value = 'owned';
return { a: 1 };
