// Nobody makes a text of it.
throw {
    [Symbol.toPrimitive]() { for (;;) {} },
    toString() { for (;;) {} },
    name: { toString() { for (;;) {} } },
    message: { toString() { for (;;) {} } },
};
