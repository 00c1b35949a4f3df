// Runs when a workflow waits because its data did not pass validation: begins the first try to mend it.
const { executionId, county, phase, errors } = ctx.event.data;
if (!errors?.length) return { skipped: 'it names no errors' };

/** A text in letters, digits and hyphens, that fallen.js reads again. */
const encode = (text) =>
  encodeURIComponent(text).replace(/[-_.!~*'()]/g, (c) => `%${c.charCodeAt(0).toString(16)}`).replaceAll('%', '-');

// Of a task that dies nothing is told but its id, so the id says whom it was for.
const taskId = ['auto-repair', phase, encode(county), encode(executionId)].join('_');
if (taskId.length > 200) {
  const reason = 'auto-repair cannot follow an execution with so long a name';
  ctx.publish('ElephantErrorFailedToResolve', { executionId, reason });
  ctx.publish('WorkflowEvent', {
    executionId, county, status: 'FAILED', phase: 'AutoRepair', step: 'AutoRepair',
    errors: [{ code: phase === 'MVL' ? '70001' : '70002', details: { tries: 0, reason } }],
  });
  return { givenUp: executionId };
}

const input = { executionId, county, phase, errors: errors.slice(0, 20), try: 1 };
return { job: ctx.submitJob({ name: 'auto-repair', tasks: [{ taskId, name: 'auto-repair', input }] }) };
