// May call itself what it likes, but is the script's own failure.
const error = new Error('memory? time?');
error.name = 'InternalError';
error.message = 'out of memory';
throw error;
