const self = {};
self.self = self;
return self;
