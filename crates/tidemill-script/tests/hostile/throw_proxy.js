throw new Proxy(function () {}, {
    get() { throw new Error('get'); },
    getPrototypeOf() { throw new Error('prototype'); },
    apply() { throw new Error('apply'); },
});
