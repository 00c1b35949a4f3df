return ({}).constructor.constructor('return globalThis')();
