ctx.publish({ toString: () => 'user.created' }, {});
