ctx.publish('a', [1, 2, 3]);
