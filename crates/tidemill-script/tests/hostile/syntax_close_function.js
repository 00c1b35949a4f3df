}); globalThis.owned = 1; (async function () {
