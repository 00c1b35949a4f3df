// Runs when a workflow waits because its data did not pass validation: begins the first try to mend it.
const { executionId, county, phase, errors } = ctx.event.data;
if (!errors?.length) return { skipped: 'it names no errors' };

const input = { executionId, county, phase, errors: errors.slice(0, 20), try: 1 };
const job = ctx.submitJob({ name: 'auto-repair', tasks: [{ taskId: 'auto-repair', name: 'auto-repair', input }] });
return { job };
