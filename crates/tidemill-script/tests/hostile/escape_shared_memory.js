return new SharedArrayBuffer(8);
