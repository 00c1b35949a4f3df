return { toJSON() { throw new Error('not today'); } };
