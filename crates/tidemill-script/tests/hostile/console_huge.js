console.log('x'.repeat(5e7));
console.log(...new Array(1e4).fill('y'.repeat(1e4)));
return 'survived';
