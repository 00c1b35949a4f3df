new FinalizationRegistry(() => {}).register({});
