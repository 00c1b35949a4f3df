for (let i = 0; i < 2e5; i++) console.log('x'.repeat(1000));
return 'survived';
