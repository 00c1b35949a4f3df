return 'x'.repeat(5e7).split('').length;
