setTimeout(() => {}, 1);
