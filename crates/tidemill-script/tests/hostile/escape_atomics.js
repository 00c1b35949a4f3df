return Atomics.wait(new Int32Array(8), 0, 0);
