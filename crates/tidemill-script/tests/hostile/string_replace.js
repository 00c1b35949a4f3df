return 'a'.repeat(2e4).replaceAll('a', 'b'.repeat(1e4)).length;
