// Tries to survive the interrupt.
try {
    for (;;) {}
} catch {
    for (;;) {}
} finally {
    for (;;) {}
}
