return /(?<=c(?:a|aa)+)b/.test('a'.repeat(80) + 'b');
