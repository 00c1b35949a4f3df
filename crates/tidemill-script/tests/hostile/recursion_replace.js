const deeper = () => 'a'.replace(/a/, deeper);
return deeper();
