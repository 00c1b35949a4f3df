for (let i = 0; i < 50; i++) ctx.publish('large', { text: 'x'.repeat(1e5) });
