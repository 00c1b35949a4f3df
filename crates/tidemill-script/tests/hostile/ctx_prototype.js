Object.setPrototypeOf(ctx.event, { owned: true });
