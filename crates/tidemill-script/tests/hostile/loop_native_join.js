// A billion holes as text, in one native call.
return (new Array(1e9) + '').length;
