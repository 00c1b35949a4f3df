delete globalThis.ctx;
