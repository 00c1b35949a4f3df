ctx.submitJob({ tasks: [] });
