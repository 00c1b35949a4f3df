}(1), function () {
