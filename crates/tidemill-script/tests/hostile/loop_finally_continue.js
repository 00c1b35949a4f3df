// A return that is taken back for ever.
for (;;) {
    try {
        return 1;
    } finally {
        continue;
    }
}
