const error = new Error('a\u0000b\n    at forged (other:1:1)');
error.stack = '    at forged (other:1:1)\n\u0000\ud800';
throw error;
