const error = new Error('x'.repeat(1e7));
error.name = 'y'.repeat(1e7);
error.stack = `z\n`.repeat(1e6);
throw error;
