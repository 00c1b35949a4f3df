// Results land in an object of the script's choice.
class Odd extends Array {
    static get [Symbol.species]() {
        return function () { return new Proxy([], { defineProperty() { return false; } }); };
    }
}
Odd.from([1, 2, 3]).map((x) => x);
