const view = new Uint8Array(1000);
view.fill({ valueOf() { view.buffer.transfer(); return 1; } });
return view.length;
