return new Array(1e8).fill('x').map((x) => x + x).length;
