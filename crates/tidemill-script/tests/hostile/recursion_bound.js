let bound = () => 1;
for (let i = 0; i < 1e5; i++) bound = bound.bind(null);
return bound();
