const deeper = () => deeper() + 1;
deeper();
