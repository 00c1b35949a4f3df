let text = 'xy';
for (;;) text += text;
