// There is no global object to be had from a function called with nothing.
return [typeof (function () { return this; })(), typeof this];
