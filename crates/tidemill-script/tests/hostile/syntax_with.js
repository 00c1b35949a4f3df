with (ctx) { return tenant; }
