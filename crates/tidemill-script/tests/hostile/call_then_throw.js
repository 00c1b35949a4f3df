// What it asked for does not count.
ctx.publish('never', {});
ctx.submitJob({});
throw new Error('after');
