return new WeakRef({}).deref();
