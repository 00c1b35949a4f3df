ctx.event.data.user.name = 'Eve';
