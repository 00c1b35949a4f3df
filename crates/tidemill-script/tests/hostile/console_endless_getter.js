console.log({ get x() { for (;;) {} } });
