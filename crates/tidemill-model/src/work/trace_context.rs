//! The ids of traces: worked out from ids that everybody knows, so that nobody has to hand them around.
//!
//! A job is a trace and its id is the trace's. A task without a job is a trace of its own. Each attempt is a span: its
//! fence is never used twice.

use crate::values::id::{JobId, RequestId, TenantId};
use crate::work::head::Fence;

/// A span and the trace it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceContext {
    trace: u128,
    span: u64,
}

impl TraceContext {
    /// The first span of a job's trace.
    pub fn of_job(job: JobId) -> Self {
        // A trace of zeros is no trace.
        let trace = job.as_u128().max(1);
        Self { trace, span: span(&[b"job", &trace.to_be_bytes()]) }
    }

    /// The first span of the trace of a task without a job.
    pub fn of_task(tenant: &TenantId, request: &RequestId) -> Self {
        let parts = [tenant.as_str().as_bytes(), request.as_str().as_bytes()];
        let (high, low) = (hash(1, &parts), hash(2, &parts));
        let trace = ((u128::from(high) << 64) | u128::from(low)).max(1);
        Self { trace, span: span(&[b"task", &trace.to_be_bytes()]) }
    }

    /// The first span of the trace that a task's attempts are in.
    pub fn root(tenant: &TenantId, job: Option<JobId>, request: &RequestId) -> Self {
        job.map_or_else(|| Self::of_task(tenant, request), Self::of_job)
    }

    /// The span of one attempt.
    pub fn of_attempt(tenant: &TenantId, job: Option<JobId>, request: &RequestId, fence: Fence) -> Self {
        let parts = [tenant.as_str().as_bytes(), request.as_str().as_bytes(), &fence.0.to_be_bytes()];
        Self { span: span(&parts), ..Self::root(tenant, job, request) }
    }

    /// Another span of the same trace, told apart by any bits.
    #[must_use]
    pub fn other(self, bits: u128) -> Self {
        Self { span: span(&[b"other", &self.span.to_be_bytes(), &bits.to_be_bytes()]), ..self }
    }

    pub fn trace_id(self) -> String {
        format!("{:032x}", self.trace)
    }

    pub fn span_id(self) -> String {
        format!("{:016x}", self.span)
    }

    /// The value of the variable or header `traceparent`, for a process that continues this span.
    pub fn traceparent(self) -> String {
        format!("00-{:032x}-{:016x}-01", self.trace, self.span)
    }
}

fn span(parts: &[&[u8]]) -> u64 {
    hash(3, parts).max(1)
}

/// FNV-1a, stirred at the end: stable for ever, which the standard hasher does not promise.
fn hash(seed: u64, parts: &[&[u8]]) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let mut hash = 0xcbf2_9ce4_8422_2325_u64 ^ seed;
    for part in parts {
        // The length keeps parts apart.
        for byte in (part.len() as u64).to_be_bytes().iter().chain(*part) {
            hash = (hash ^ u64::from(*byte)).wrapping_mul(PRIME);
        }
    }
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^= hash >> 33;
    hash = hash.wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::trusted(name)
    }

    #[test]
    fn the_trace_of_a_job_has_its_id_and_attempts_are_in_it() {
        let job = JobId::from_u128(0x0199_f2c7_0000_7000_8000_0000_0000_00aa);
        let request = RequestId::trusted("r");
        let root = TraceContext::of_job(job);
        assert_eq!(root.trace_id(), "0199f2c70000700080000000000000aa");
        let attempt = TraceContext::of_attempt(&tenant("acme"), Some(job), &request, Fence(7));
        assert_eq!(attempt.trace_id(), root.trace_id());
        assert_ne!(attempt.span_id(), root.span_id());
        let expected = format!("00-0199f2c70000700080000000000000aa-{}-01", attempt.span_id());
        assert_eq!(attempt.traceparent(), expected);
        assert_eq!(TraceContext::of_job(JobId::from_u128(0)).trace, 1, "zeros are no trace");
    }

    /// They are on record in collectors, so they never change.
    #[test]
    fn ids_stay_as_they_are() {
        let request = RequestId::trusted("req-1");
        let alone = TraceContext::of_attempt(&tenant("acme"), None, &request, Fence(1));
        assert_eq!(alone.traceparent(), "00-f4fd34615a382a42340a8bf89bf1de3c-237b7c0d4ee09af4-01");
    }

    #[test]
    fn no_two_are_the_same() {
        let job = JobId::from_u128(5);
        let mut seen = HashSet::new();
        for tenant in [tenant("a"), tenant("ab")] {
            for request in ["b", "bb", "c"].map(RequestId::trusted) {
                assert!(seen.insert(TraceContext::of_task(&tenant, &request)));
                for fence in 0..1_000 {
                    assert!(seen.insert(TraceContext::of_attempt(&tenant, None, &request, Fence(fence))));
                    assert!(seen.insert(TraceContext::of_attempt(
                        &tenant,
                        Some(job),
                        &request,
                        Fence(fence)
                    )));
                }
            }
        }
        assert!(seen.insert(TraceContext::of_job(job).other(1)));
        assert!(seen.insert(TraceContext::of_job(job).other(2)));
    }
}
