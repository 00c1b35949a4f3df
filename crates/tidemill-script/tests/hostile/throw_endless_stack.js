const error = new Error('look at me');
Object.defineProperty(error, 'stack', { get() { for (;;) {} } });
throw error;
