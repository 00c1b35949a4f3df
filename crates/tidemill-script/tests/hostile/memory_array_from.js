return Array.from({ length: 4294967295 }, () => ({})).length;
