// Catches what it can, again and again.
const held = [];
for (let i = 0; i < 1e9; i++) {
    try {
        for (;;) held.push(new Array(1e5).fill(held.length));
    } catch (error) {
        if (i > 20) throw error;
    }
}
