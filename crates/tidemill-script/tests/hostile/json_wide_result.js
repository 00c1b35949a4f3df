// Forty objects, a trillion when written.
let wide = { leaf: 1 };
for (let i = 0; i < 40; i++) wide = { a: wide, b: wide };
return wide;
