return (function () { return arguments.callee; })();
