//! The sweep: finds whatever stands still and sets it moving, so that no lost wake-up can stall a job.

use tidemill_model::{Lease, TaskHead, TaskState, Timestamp};

use crate::engine::{Engine, EngineError, take_reply};
use crate::kernel::backend::Backend;
use crate::kernel::clock::AHEAD_MILLIS_MAX;
use crate::kernel::command::Command;
use crate::kernel::commit::{Delivered, TaskChangeKind, TaskKey};
use crate::kernel::decision::{Decision, MayFail};
use crate::kernel::draft::Draft;
use crate::kernel::reply::{Refusal, Reply};
use crate::kernel::state::State;
use crate::kernel::state::queue::Queued;
use crate::work::running::advance::dispatch_ready;

/// How often one call walks over all live work. What is left then is for the next sweep.
const PASSES_MAX: u32 = 64;

/// Looks for what stands still and sets it moving, from `after` on.
#[derive(Debug, Clone, Default)]
pub struct Sweep {
    pub after: Option<TaskKey>,
}

impl Decision for Sweep {
    fn may_fail_jobs(&self) -> MayFail<'_> {
        MayFail::OfAnyTenant
    }

    fn decide(&self, state: &State, draft: &mut Draft<'_, '_>) -> Result<Reply, Refusal> {
        Ok(decide(state, self, draft))
    }
}

pub(crate) fn decide(state: &State, command: &Sweep, draft: &mut Draft<'_, '_>) -> Reply {
    let mut repaired = 0;
    if command.after.is_none() {
        let mut stalled: Vec<_> = state.jobs().filter(|job| !job.ready.is_empty()).collect();
        stalled.sort_by_key(|job| job.head.job);
        for job in stalled {
            repaired += dispatch_ready(job, draft);
        }
    }
    let max = draft.policy().sweep_max;
    let mut last = None;
    let mut seen = 0;
    for key in state.live_after(command.after.as_ref()).take(max) {
        seen += 1;
        last = Some(key);
        let Some(task) = state.task(key) else { continue };
        let Some(head) = task.entry.head.as_ref() else { continue };
        let queued = task.entry.message.and_then(|message| state.queue().get(message));
        let has_message =
            queued.is_some_and(|queued| queued.message.task == *key && queued.message.run == head.run);
        let needs_message = match &head.state {
            TaskState::Queued => true,
            TaskState::Leased(_) => !is_held(head, draft),
            TaskState::Parked | TaskState::Done(_) => false,
        };
        if needs_message && !has_message {
            draft.enqueue(key, head.run, draft.now());
            repaired += 1;
        } else if let Some(queued) = queued.filter(|_| has_message)
            && let Some(at) = moved_back(head, queued, draft)
        {
            if is_held(head, draft) {
                draft.change(key, TaskChangeKind::Shorten { fence: head.fence, until: at });
                // The lease still holds in its last millisecond.
                draft.show_at(queued.message.id, at.plus(1), Delivered::No);
            } else {
                draft.show_at(queued.message.id, at, Delivered::No);
            }
            repaired += 1;
        } else if let TaskState::Leased(lease) = &head.state
            && !has_message
            && let Some(until) = shortened(lease, draft)
        {
            // Somebody deleted its message. It gets one when the lease is over.
            draft.change(key, TaskChangeKind::Shorten { fence: head.fence, until });
            repaired += 1;
        }
    }
    Reply::Swept { repaired, after: last.filter(|_| seen == max).cloned() }
}

/// When a hidden message may be seen, or a lease ends, if the clock was set back since: as long from now as it had to wait
/// when it was hidden. Else it would wait for a time that is as far away as the clock was set back.
fn moved_back(head: &TaskHead, queued: &Queued, draft: &Draft<'_, '_>) -> Option<Timestamp> {
    let now = draft.now();
    match &head.state {
        TaskState::Leased(lease) if is_held(head, draft) => shortened(lease, draft),
        TaskState::Queued | TaskState::Leased(_) if stays_hidden(draft) => None,
        // The message of a lease that is over may have been received and hidden by hand since.
        TaskState::Queued | TaskState::Leased(_) => {
            let at = now.plus(queued.wait_millis);
            Some(at).filter(|at| queued.visible_at.since(*at) > AHEAD_MILLIS_MAX)
        }
        TaskState::Parked | TaskState::Done(_) => None,
    }
}

/// Whether a worker holds the task now.
fn is_held(head: &TaskHead, draft: &Draft<'_, '_>) -> bool {
    matches!(&head.state, TaskState::Leased(lease) if lease.until >= draft.now())
}

/// When a lease ends that lasts much longer than a new one would. Its worker may be gone, and would be missed only
/// when the clock is there again. A live worker can still report.
fn shortened(lease: &Lease, draft: &Draft<'_, '_>) -> Option<Timestamp> {
    let at = draft.now().plus(draft.policy().lease_millis);
    Some(at).filter(|at| lease.until.since(*at) > AHEAD_MILLIS_MAX)
}

#[cfg(not(feature = "faults"))]
fn stays_hidden(_: &Draft<'_, '_>) -> bool {
    false
}

#[cfg(feature = "faults")]
fn stays_hidden(draft: &Draft<'_, '_>) -> bool {
    draft.policy().faults.keep_hidden
}

impl<B: Backend> Engine<B> {
    /// Finds whatever stands still and sets it moving, until nothing more is found. Tells how much was.
    pub async fn sweep(&self) -> Result<u64, EngineError> {
        let mut repaired = 0;
        for _ in 0..PASSES_MAX {
            let found = self.sweep_once().await?;
            repaired += found;
            if found == 0 {
                break;
            }
        }
        Ok(repaired)
    }

    async fn sweep_once(&self) -> Result<u64, EngineError> {
        let mut found = 0;
        let mut from = None;
        loop {
            let reply = self.execute(Command::Sweep(Sweep { after: from })).await?;
            let (repaired, after) =
                take_reply!(reply, Reply::Swept { repaired, after } => (repaired, after))?;
            found += u64::from(repaired);
            if after.is_none() {
                return Ok(found);
            }
            from = after;
        }
    }
}

#[cfg(test)]
mod tests {
    use tidemill_model::ErrorCategory;

    use crate::kernel::command::{Command, Delete, Receive, Recover, Send, Sweep};
    use crate::kernel::fixture::{Fixture, alone, completed, failed, key, spec};
    use crate::kernel::reply::Reply;

    const DAY: u64 = 24 * 3_600_000;

    fn sweep(fixture: &mut Fixture) -> u32 {
        match fixture.run(&Command::Sweep(Sweep::default())).unwrap().1 {
            Reply::Swept { repaired, .. } => repaired,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_clock_that_was_set_back_hides_no_task() {
        for (state, claimable) in [
            ("fresh", true),
            ("a join", true),
            ("sent", true),
            ("sent for later", false),
            ("given back", true),
            ("retrying", false),
            ("leased", false),
            ("leased by a remote worker that was heard ahead of time", false),
        ] {
            let mut fixture = Fixture::new();
            match state {
                "a join" => {
                    fixture.submit_job(vec![spec("a", &[]), spec("b", &["a"])]);
                    let task = fixture.claim(1).remove(0);
                    fixture.finish(&task.task, task.fence, completed()).unwrap();
                }
                "sent" | "sent for later" => {
                    let delay_millis = if state == "sent" { 0 } else { 300_000 };
                    let message = Send { task: alone("t-1"), run: 1, delay_millis };
                    fixture.run(&Command::Send(message)).unwrap();
                }
                _ => fixture.submit_task("t-1"),
            }
            match state {
                "fresh" | "a join" | "sent" | "sent for later" => {}
                "given back" => {
                    // Recovered long after its last event.
                    fixture.claim(1);
                    fixture.now = fixture.now.plus(DAY);
                    fixture.run(&Command::Recover(Recover { generation: 9 })).unwrap();
                }
                "retrying" => {
                    let task = fixture.claim(1).remove(0);
                    fixture.finish(&task.task, task.fence, failed(ErrorCategory::Network)).unwrap();
                }
                "leased" => drop(fixture.claim(1)),
                _ => {
                    let task = fixture.claim(1).remove(0);
                    fixture.now = fixture.now.plus(DAY);
                    fixture.heartbeat(&task.task, task.fence);
                }
            }
            assert_eq!(sweep(&mut fixture), 0, "{state}: it waits as it should");
            fixture.now = fixture.now.minus(DAY);
            fixture.restart();
            assert_eq!(fixture.claim(1).len(), 0, "{state}");
            assert_eq!(sweep(&mut fixture), 1, "{state}");
            assert_eq!(sweep(&mut fixture), 0, "{state}: once is enough");
            assert_eq!(
                fixture.claim(1).len(),
                usize::from(claimable),
                "{state}: no sooner than it was to be"
            );
            if !claimable {
                fixture.now = fixture.now.plus(10 * 60_000);
                assert_eq!(fixture.claim(1).len(), 1, "{state}");
            }
        }
    }

    #[test]
    fn a_delay_that_somebody_asked_for_is_not_cut_short() {
        // Ids of a later life run ahead of a clock that was set back.
        let mut fixture = Fixture::new();
        fixture.submit_task("t-1");
        fixture.now = fixture.now.minus(DAY);
        fixture.restart();
        fixture.run(&Command::Send(Send { task: alone("t-2"), run: 1, delay_millis: 600_000 })).unwrap();
        assert_eq!(sweep(&mut fixture), 1, "t-1 alone");
        assert_eq!(fixture.claim(9).len(), 1);
        fixture.now = fixture.now.plus(600_000);
        assert_eq!(fixture.claim(9).iter().filter(|task| task.task == key("t-2")).count(), 1);
    }

    #[test]
    fn what_was_hidden_by_hand_is_not_stranded() {
        let mut fixture = Fixture::new();
        fixture.submit_task("t-1");
        let receive = Receive { tenants: None, max: 1, visibility_millis: Some(120_000) };
        fixture.run(&Command::Receive(receive)).unwrap();
        for _ in 0..2 {
            fixture.now = fixture.now.minus(DAY);
            fixture.restart();
            assert_eq!(sweep(&mut fixture), 1);
        }
        assert_eq!(fixture.claim(1).len(), 0, "it stays hidden for as long as was asked");
        fixture.now = fixture.now.plus(120_000);
        assert_eq!(fixture.claim(1).len(), 1);
    }

    #[test]
    fn what_was_hidden_by_hand_after_its_lease_is_not_stranded() {
        let mut fixture = Fixture::new();
        fixture.submit_task("t-1");
        assert_eq!(fixture.claim(1).len(), 1);
        fixture.now = fixture.now.plus(DAY);
        let receive = Receive { tenants: None, max: 1, visibility_millis: Some(120_000) };
        fixture.run(&Command::Receive(receive)).unwrap();
        assert_eq!(sweep(&mut fixture), 0);
        // The lease is still over.
        fixture.now = fixture.now.minus(DAY / 2);
        assert_eq!(sweep(&mut fixture), 1);
        assert_eq!(fixture.claim(1).len(), 0, "it stays hidden for as long as was asked");
        fixture.now = fixture.now.plus(120_000);
        assert_eq!(fixture.claim(1).len(), 1);
    }

    #[test]
    fn what_was_sent_for_later_is_not_stranded_by_a_second_step() {
        let mut fixture = Fixture::new();
        fixture.run(&Command::Send(Send { task: alone("t-1"), run: 1, delay_millis: 300_000 })).unwrap();
        for _ in 0..2 {
            fixture.now = fixture.now.minus(DAY);
            fixture.restart();
            assert_eq!(sweep(&mut fixture), 1);
        }
        fixture.now = fixture.now.plus(300_000);
        assert_eq!(fixture.claim(1).len(), 1);
    }

    #[test]
    fn a_retry_waits_no_longer_than_its_own_delay_when_the_clock_is_set_back_twice() {
        let mut fixture = Fixture::new();
        fixture.submit_task("t-1");
        let task = fixture.claim(1).remove(0);
        fixture.finish(&task.task, task.fence, failed(ErrorCategory::Network)).unwrap();
        for _ in 0..2 {
            fixture.now = fixture.now.minus(DAY);
            fixture.restart();
            assert_eq!(sweep(&mut fixture), 1);
        }
        // The first delay and its jitter, not the longest of all.
        let retry = fixture.policy.retry;
        fixture.now = fixture.now.plus(retry.first_delay + retry.first_delay / 5);
        assert_eq!(fixture.claim(1).len(), 1);
    }

    #[test]
    fn a_retry_whose_message_was_lost_is_not_stranded() {
        let mut fixture = Fixture::new();
        fixture.submit_task("t-1");
        let task = fixture.claim(1).remove(0);
        fixture.finish(&task.task, task.fence, failed(ErrorCategory::Network)).unwrap();
        fixture.now = fixture.now.plus(60_000);
        let receive = Receive { tenants: None, max: 1, visibility_millis: None };
        let Reply::Received { messages, .. } = fixture.run(&Command::Receive(receive)).unwrap().1 else {
            panic!("no answer to a receive");
        };
        fixture.run(&Command::Delete(Delete { tenant: None, receipt: messages[0].1 })).unwrap();
        // Long after the failure it gets a new one.
        fixture.now = fixture.now.plus(DAY);
        assert_eq!(sweep(&mut fixture), 1);
        fixture.now = fixture.now.minus(3 * DAY);
        fixture.restart();
        assert_eq!(sweep(&mut fixture), 1);
        assert_eq!(fixture.claim(1).len(), 1, "the new one had nothing to wait for");
    }

    #[test]
    fn a_live_worker_is_heard_after_the_clock_was_set_back() {
        let mut fixture = Fixture::new();
        fixture.submit_task("t-1");
        let task = fixture.claim(1).remove(0);
        fixture.now = fixture.now.minus(DAY);
        assert_eq!(sweep(&mut fixture), 1);
        fixture.finish(&key("t-1"), task.fence, completed()).unwrap();
    }
}
