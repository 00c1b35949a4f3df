return 'x'.repeat(2 ** 31).length;
