// Nobody looks at it.
Promise.reject(new Error('lost'));
return 'survived';
