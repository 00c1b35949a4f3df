globalThis.ctx = new Proxy(ctx, { get: () => 'other' });
