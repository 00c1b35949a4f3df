// A view of its own is its own business.
const view = new Proxy({}, { get: (target, name) => (name === 'tenant' ? ctx[name] : 'mine') });
return [view.tenant.id, view.event, Reflect.ownKeys(ctx).length];
