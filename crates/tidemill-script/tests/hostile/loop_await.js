// Never leaves the queue of jobs.
for (;;) await null;
