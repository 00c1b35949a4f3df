// A thenable that resolves to itself.
const thenable = { then(resolve) { resolve(thenable); } };
await thenable;
