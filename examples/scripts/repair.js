// Runs for every task that failed for good: sorts it by the class of its error and submits the repair of that sort.
const GROUPS = {
  timeout: 'overload', 'rate-limit': 'overload', 'server-error': 'overload', network: 'overload',
  auth: 'access',
  validation: 'data', parse: 'data', 'not-found': 'data',
};

const { requestId, jobId, errorCategory, error, retryCount } = ctx.event.data;
const group = GROUPS[errorCategory] ?? 'code';
console.log(`${requestId} failed after ${retryCount} attempts: ${errorCategory}, so ${group}`);

const repair = ctx.submitJob({
  name: `repair-${group}`,
  tasks: [{ taskId: 'mend', name: 'repair', input: { group, errorCategory, error, requestId, jobId: jobId ?? null } }],
});
// One type for all of them: `tidemill events query --type repair.requested` shows the groups over time.
ctx.publish('repair.requested', { group, errorCategory, requestId, repair });
return { group, repair };
