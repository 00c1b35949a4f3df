return 0777;
