Object.defineProperty(ctx, 'tenant', { get: () => ({ id: 'other' }) });
