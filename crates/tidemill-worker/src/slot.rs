//! One slot of a worker: claim, run, report and claim the next in the same commit.

use std::sync::Arc;
use std::time::Duration;

use tidemill_engine::backend::Backend;
use tidemill_engine::engine::{
    AttemptReport, Claimant, Claimed, EngineError, Signal, WorkReport, unloaded_report,
};
use tidemill_engine::reply::Assignment;
use tidemill_engine::warn_seldom;
use tidemill_model::{Backoff, ErrorCategory};
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{Instrument as _, debug_span};

use crate::attempt::millis;
use crate::command_worker::PERSISTENCE_AT_STOP;
use crate::handler::{Outcome, TaskContext, TaskError};
use crate::lease_keeper::LeaseKeeper;
use crate::native::NativeWorker;
use crate::pace::Pace;

/// A store that does not answer is asked again after this long, and after twice as long each time.
const PAUSE_MAX: Duration = Duration::from_secs(2);
const PAUSES: Backoff = Backoff::new(Duration::from_millis(50), PAUSE_MAX);

pub(crate) struct Slot<B> {
    worker: Arc<NativeWorker<B>>,
    leases: Arc<LeaseKeeper>,
    stopping: watch::Receiver<Pace>,
}

/// How the running of a task ended.
enum End {
    Report(WorkReport),
    /// Somebody else holds it now: nothing may be written.
    Lost,
    /// The worker shuts down before it ended, or cannot run it.
    GivenBack(String),
}

impl<B: Backend> Slot<B> {
    pub(crate) fn new(
        worker: Arc<NativeWorker<B>>,
        leases: Arc<LeaseKeeper>,
        stopping: watch::Receiver<Pace>,
    ) -> Self {
        Self { worker, leases, stopping }
    }

    pub(crate) async fn run(mut self) {
        let mut pauses = PAUSES;
        while *self.stopping.borrow() == Pace::Work {
            // Workers with an outcome for a lease that ran out meanwhile come first.
            let wait = self.worker.engine().claims_wait();
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
            let asked_at = Instant::now();
            let claimed = match self.worker.engine().claim(self.claim()).await {
                Ok(claimed) => claimed,
                Err(error) => {
                    warn_seldom!(error, "no task could be claimed; it is tried again");
                    tokio::time::sleep(pauses.pause()).await;
                    continue;
                }
            };
            pauses.reset();
            match claimed.tasks.into_iter().next() {
                Some(task) => self.work_off(task, asked_at).await,
                None => self.wait_for_work().await,
            }
        }
    }

    /// Runs a task and those that follow it without a pause.
    async fn work_off(&mut self, first: Assignment, asked_at: Instant) {
        let mut next = Some((first, asked_at));
        while let Some((task, asked_at)) = next.take() {
            let span = debug_span!(
                "attempt",
                tenant = %task.task.tenant,
                job = task.job.map(tracing::field::display),
                request = %task.task.request,
                run = task.run,
                attempt = task.attempt,
                fence = task.fence.0,
            );
            let report = match self.run_task(&task, asked_at).instrument(span).await {
                End::Report(report) => report,
                End::Lost => return,
                End::GivenBack(reason) => return self.give_back(&[task], Some(&reason)).await,
            };
            let finish = AttemptReport::of(&task, self.worker.config().worker.clone(), report);
            // Without an answer the lease runs out and another worker takes the task.
            let Some((claimed, asked_at)) = self.report(finish).await else { return };
            next = claimed.tasks.into_iter().next().map(|task| (task, asked_at));
        }
    }

    async fn wait_for_work(&mut self) {
        let arrived = self.worker.engine().work_arrived(self.worker.config().tenants.clone());
        tokio::select! {
            () = arrived => {}
            _ = self.stopping.changed() => {}
        }
    }

    fn claim(&self) -> Claimant {
        let config = self.worker.config();
        Claimant {
            worker: config.worker.clone(),
            generation: config.generation,
            max: 1,
            tenants: config.tenants.clone(),
            begin: Some(std::process::id()),
        }
    }

    /// Records an outcome and takes the next task, unless the worker stops. Tries again while the store cannot.
    ///
    /// An outcome that will never be taken as it is, such as one that is too large, fails the task with the reason. With
    /// what was taken it tells when it was asked for.
    async fn report(&self, mut finish: AttemptReport) -> Option<(Claimed, Instant)> {
        let began = Instant::now();
        let mut pauses = PAUSES;
        let mut was_refused = false;
        loop {
            let asked_at = Instant::now();
            let may_claim = self.worker.engine().claims_wait().is_zero();
            let (finished, claimed) = if may_claim && *self.stopping.borrow() == Pace::Work {
                match self.worker.engine().finish_and_claim(finish.clone(), self.claim()).await {
                    Ok((finished, claimed)) => (finished.map(drop), claimed),
                    Err(error) => (Err(error), nothing()),
                }
            } else {
                (self.worker.engine().finish(finish.clone()).await.map(drop), nothing())
            };
            let error = match finished {
                // A slot that lost its task may still have the next one.
                Ok(()) | Err(EngineError::Refused(_)) => return Some((claimed, asked_at)),
                Err(error) => error,
            };
            // The slot has an outcome to mend first.
            self.give_back(&claimed.tasks, None).await;
            let is_stopping = *self.stopping.borrow() != Pace::Work;
            let at_most = if is_stopping { PERSISTENCE_AT_STOP } else { Duration::MAX };
            let is_patient = began.elapsed() < self.worker.config().persistence.min(at_most);
            warn_seldom!(error, request = %finish.task.request, "an outcome could not be recorded");
            if error.is_transient() && is_patient {
                tokio::time::sleep(pauses.pause()).await;
            } else if matches!(error, EngineError::Fault(_)) || was_refused {
                return None;
            } else {
                was_refused = true;
                let message = format!("the outcome was refused: {error}");
                finish.report =
                    WorkReport::failed(message, ErrorCategory::Validation).with_spent(finish.report.spent());
            }
        }
    }

    async fn run_task(&self, task: &Assignment, asked_at: Instant) -> End {
        let started = Instant::now();
        let lease = self.leases.hold(task.task.clone(), task.fence, asked_at);
        let work = match self.worker.engine().work_of(task).await {
            Ok(work) => work,
            Err(error @ EngineError::Fault(_)) if error.is_transient() => {
                // No fault of the task. The store is given a moment.
                tokio::time::sleep(PAUSE_MAX).await;
                return End::GivenBack(format!("what it needs cannot be read now: {error}"));
            }
            Err(error) => return End::Report(unloaded_report(&error)),
        };
        let timeout =
            task.spec.options.timeout_ms.map_or(self.worker.config().timeout, Duration::from_millis);
        let running = self.worker.handlers().run(TaskContext::new(task, work, self.worker.engine()));
        let ended = tokio::select! {
            biased;
            outcome = running => outcome,
            () = self.worker.engine().revoked(&task.task, task.fence) => return End::Lost,
            () = lease.lost() => return End::Lost,
            () = self.must_give_back() => return End::GivenBack("worker shutdown".to_owned()),
            () = tokio::time::sleep(timeout) => {
                let elapsed_millis = millis(started.elapsed());
                let timeout_millis = millis(timeout);
                return End::Report(WorkReport::timed_out(timeout_millis, elapsed_millis, Signal::Kill));
            }
        };
        End::Report(report_of(ended, started))
    }

    async fn must_give_back(&self) {
        let mut stopping = self.stopping.clone();
        // Without a handle nobody asks for it any more.
        if stopping.wait_for(|pace| *pace == Pace::GiveBack).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    async fn give_back(&self, tasks: &[Assignment], reason: Option<&str>) {
        self.worker.engine().give_back(tasks, &self.worker.config().worker, reason).await;
    }
}

fn nothing() -> Claimed {
    Claimed { tasks: Vec::new(), next: None }
}

fn report_of(outcome: Outcome, started: Instant) -> WorkReport {
    match outcome {
        Ok(output) => WorkReport::completed(output, millis(started.elapsed())),
        Err(TaskError { message, category, retry_after_millis }) => WorkReport::Failed {
            error: message,
            category,
            retry_after_millis,
            code: None,
            usage: None,
            session_id: None,
        },
    }
}
