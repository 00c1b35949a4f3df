// Runs when a try has died for good: killed, too slow, cancelled, or its worker lost too often. Nobody knows then whether the
// data can be mended, so a person has to look: nothing is left open without a word.
const { taskId, error, requestId } = ctx.event.data;
/** What giving up is called, by the phase that failed. */
const EXHAUSTED = { MVL: '70001', SVL: '70002' };

// The id says whom the try was for; see begin.js.
const [, phase, ...texts] = taskId.split('_');
const [county, executionId] = texts.map((text) => decodeURIComponent(text.replaceAll('-', '%')));
console.log(`the repair of ${executionId} died: ${error ?? ctx.event.type}`);

ctx.publish('ElephantErrorFailedToResolve', { executionId, reason: `auto-repair died: ${requestId}` });
ctx.publish('WorkflowEvent', {
  executionId, county, status: 'FAILED', phase: 'AutoRepair', step: 'AutoRepair',
  errors: [{ code: EXHAUSTED[phase], details: { task: requestId, error: error ?? ctx.event.type } }],
});
return { givenUp: executionId };
