return (function outer() { return outer.caller; })();
