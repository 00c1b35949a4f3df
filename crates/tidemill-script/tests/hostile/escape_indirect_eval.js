return (0, globalThis.eval)('1 + 1');
