// Ropes are cheap until somebody looks into them.
let text = 'xy\u1234';
while (text.length < 5e8) text += text;
return text.codePointAt(text.length / 2);
