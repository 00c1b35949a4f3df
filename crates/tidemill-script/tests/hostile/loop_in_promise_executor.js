// An executor's exception becomes a rejection; an interrupt must not.
for (;;) {
    new Promise(() => {
        for (;;) {}
    }).catch(() => {});
}
