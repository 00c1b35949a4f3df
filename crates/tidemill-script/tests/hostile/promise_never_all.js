// One of many never ends.
await Promise.all([1, Promise.resolve(2), new Promise(() => {})]);
