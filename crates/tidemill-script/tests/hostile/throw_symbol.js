throw Symbol('why');
