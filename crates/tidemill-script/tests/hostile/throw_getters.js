const error = new Error('x');
for (const name of ['name', 'message', 'stack', 'cause', 'toString', 'constructor']) {
    Object.defineProperty(error, name, { get() { throw error; } });
}
throw error;
