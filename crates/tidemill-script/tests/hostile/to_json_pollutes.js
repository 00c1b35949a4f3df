// Patches everything while the result is written.
return {
    toJSON() {
        JSON.stringify = String = Object = null;
        globalThis.undefined2 = 1;
        delete globalThis.JSON;
        return { a: 1 };
    },
};
