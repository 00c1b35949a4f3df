const self = { toString() { return `${self}`; } };
return `${self}`;
