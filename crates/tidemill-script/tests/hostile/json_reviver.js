return JSON.parse('[1,2,3]', function (key, value) {
    for (;;) this[key + 'x'] = [value];
});
