// Answers at random and changes the array meanwhile.
const list = Array.from({ length: 2000 }, (_, i) => i);
list.sort(() => {
    list.length = 10;
    list.push({});
    return Math.random() - 0.5;
});
return 'survived';
