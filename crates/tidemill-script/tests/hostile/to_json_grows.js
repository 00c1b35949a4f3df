// Each answer is larger than the last.
const grow = (n) => ({ toJSON: () => (n > 30 ? 'x'.repeat(2 ** 20) : [grow(n + 1), grow(n + 1)]) });
return grow(0);
