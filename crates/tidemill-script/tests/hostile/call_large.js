ctx.publish('large', { text: 'x'.repeat(3e5) });
