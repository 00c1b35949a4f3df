// Runs when a try has ended: says that the errors are mended, tries again, or gives up.
const TRIES_MAX = 3;
/** What giving up is called, by the phase that failed. */
const EXHAUSTED = { MVL: '70001', SVL: '70002' };

const { taskId, output } = ctx.event.data;
const { mended, proposal, repair } = output;
const { executionId, county, phase } = repair;
console.log(`try ${repair.try} for ${executionId}: ${mended ? 'mended' : 'not mended'}`);

if (mended) {
  // With WORKFLOW_AUTO_RESUME the execution goes on by itself now.
  ctx.publish('ElephantErrorResolved', { executionId, reason: `auto-repair, try ${repair.try}: ${proposal}` });
  return { resolved: executionId };
}
if (repair.try < TRIES_MAX) {
  const input = { ...repair, try: repair.try + 1 };
  return { job: ctx.submitJob({ name: 'auto-repair', tasks: [{ taskId, name: 'auto-repair', input }] }) };
}
ctx.publish('ElephantErrorFailedToResolve', { executionId, reason: `auto-repair gave up after ${TRIES_MAX} tries` });
ctx.publish('WorkflowEvent', {
  executionId, county, status: 'FAILED', phase: 'AutoRepair', step: 'AutoRepair',
  errors: [{ code: EXHAUSTED[phase], details: { tries: TRIES_MAX, lastProposal: proposal } }],
});
return { givenUp: executionId };
