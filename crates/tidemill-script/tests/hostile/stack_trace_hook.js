// No call sites, and no say in what a stack is.
Error.prepareStackTrace = (error, sites) => sites.map((site) => site.getFunction());
Error.stackTraceLimit = Infinity;
return typeof new Error('x').stack;
