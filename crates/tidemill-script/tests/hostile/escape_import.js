return await import('fs');
