// Waits for a clock that stands still.
const end = Date.now() + 50;
while (Date.now() < end) {}
