// Runs after it, in the same host.
const held = [];
const length = held.push(1);
return JSON.stringify([typeof leak, typeof later, typeof ({}).leak, length, typeof ''.leak, typeof Date.now(), typeof Math.random(), typeof console.log(), typeof new Error().leak]);
