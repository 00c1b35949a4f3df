const { resolveError } = ctx;
Reflect.apply(resolveError, undefined, [{ errorCode: '01256' }]);
