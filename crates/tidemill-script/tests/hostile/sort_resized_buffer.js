// Takes the memory away from under the sort.
const buffer = new ArrayBuffer(4000, { maxByteLength: 8000 });
const view = new Int32Array(buffer).fill(7);
view.sort((a, b) => {
    buffer.resize(0);
    return a - b;
});
return view.length;
