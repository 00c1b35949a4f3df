// One native call that asks for no interrupt and compares fifty trillion characters.
return 'a'.repeat(1e7).indexOf('a'.repeat(5e6) + 'b');
