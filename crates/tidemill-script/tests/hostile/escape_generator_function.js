return (function* () {}).constructor('yield globalThis')().next();
