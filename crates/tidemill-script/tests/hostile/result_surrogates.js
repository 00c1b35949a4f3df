// Halves of pairs in every place.
console.log('\ud800', { '\udc00': '\ud800' });
return { '\ud800': '\udc00', text: '\u0000' };
