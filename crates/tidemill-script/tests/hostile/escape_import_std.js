return (await import('std')).open('/etc/passwd', 'r').readAsString();
