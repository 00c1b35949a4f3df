const self = new Proxy({}, { get(target, name, receiver) { return receiver[name]; } });
return self.deeper;
