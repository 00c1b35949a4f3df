async function* numbers() {
    for (;;) yield new Array(1000).fill(0);
}
const held = [];
for await (const list of numbers()) held.push(list);
