ctx.publish('x'.repeat(5e7), {});
