const f = () => { await null; };
