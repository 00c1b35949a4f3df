// Small to write, large to compile.
let pattern = 'a';
for (let i = 0; i < 12; i++) pattern = `(?:${pattern}){1,1000}`;
return new RegExp(`^${pattern}$`).test('a'.repeat(2000) + 'b');
