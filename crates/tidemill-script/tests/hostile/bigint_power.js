let power = 3n;
for (;;) power **= 3n;
