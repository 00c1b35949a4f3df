// The loop ends by an exception, the generator does not want to.
function* stubborn() {
    for (;;) {
        try {
            yield 1;
        } finally {
            for (;;) {}
        }
    }
}
for (const one of stubborn()) break;
