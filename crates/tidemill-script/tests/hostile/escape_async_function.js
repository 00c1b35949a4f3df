return await (async () => {}).constructor('return globalThis')();
