await Promise.all(Array.from({ length: 1e7 }, (_, i) => Promise.resolve(i).then((n) => [n])));
