const self = { get deeper() { return self.deeper; } };
return self.deeper;
