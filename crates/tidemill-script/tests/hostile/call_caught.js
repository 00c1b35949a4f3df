// A refusal is an error like any other.
let refused = 0;
for (const call of [() => ctx.submitJob({}), () => ctx.resolveError({}), () => ctx.publish('a#b', {})]) {
    try {
        call();
    } catch (error) {
        refused += error instanceof PermissionError || error instanceof ValidationError ? 1 : 0;
    }
}
return refused;
