// The plainest of all.
for (;;) {}
