let last = () => 0;
for (;;) {
    const before = last;
    last = () => before;
}
