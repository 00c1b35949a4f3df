// Each job makes the next one.
const again = () => queueMicrotask(again);
again();
