return [...(function* () { for (;;) yield 1; })()].length;
