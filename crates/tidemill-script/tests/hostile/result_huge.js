return 'x'.repeat(1e6);
