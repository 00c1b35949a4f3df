// Claims to have more members than there is memory.
return new Proxy({}, {
    ownKeys: () => Array.from({ length: 5e3 }, (_, i) => `k${i}`),
    getOwnPropertyDescriptor: () => ({ value: 'x'.repeat(100), enumerable: true, configurable: true }),
    get: (target, name) => (name === 'toJSON' ? undefined : 'x'.repeat(100)),
});
