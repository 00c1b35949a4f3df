return new ArrayBuffer(1e12).byteLength;
