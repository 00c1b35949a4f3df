for (;;) ctx.publish('again', { n: 1 });
