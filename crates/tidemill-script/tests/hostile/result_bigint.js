return { amount: 10n };
