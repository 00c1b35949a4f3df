// A set that never ends.
return new Set([1]).isSubsetOf({ size: Infinity, has: () => true, keys: () => ({ next: () => ({ done: false }) }) })
    && new Set([1]).union({ size: 1, has: () => true, keys: () => ({ next: () => ({ done: false, value: 1 }) }) }).size;
