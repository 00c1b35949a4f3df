//! Callers that wait for a job to come to rest.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tidemill_engine::backend::Fault;
use tidemill_engine::notice::{Listening, Notice};
use tidemill_model::JobId;

use super::progress::Progress;

/// Wakes only the callers whose own job came to rest, so that a step of a job does not wake those that wait for its
/// end.
#[derive(Debug, Default)]
pub(super) struct RestBoard {
    watched: Mutex<HashMap<JobId, Watched, foldhash::fast::RandomState>>,
}

#[derive(Debug, Default)]
struct Watched {
    notice: Notice,
    watchers: usize,
}

impl RestBoard {
    fn lock(&self) -> MutexGuard<'_, HashMap<JobId, Watched, foldhash::fast::RandomState>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These jobs came to rest, and that is on disk.
    pub(super) fn rested(&self, jobs: &[JobId]) {
        if jobs.is_empty() {
            return;
        }
        let watched = self.lock();
        if !watched.is_empty() {
            jobs.iter().filter_map(|job| watched.get(job)).for_each(|watched| watched.notice.ring());
        }
    }

    /// Something happened after which everybody must look again.
    pub(super) fn ring_all(&self) {
        self.lock().values().for_each(|watched| watched.notice.ring());
    }
}

/// Resolves when a job comes to rest after this was made; it may be too early, never too late.
#[derive(Debug)]
pub struct JobRest<'a> {
    progress: &'a Progress,
    job: JobId,
    listening: Listening,
}

impl<'a> JobRest<'a> {
    pub(super) fn watch(progress: &'a Progress, job: JobId) -> Self {
        let mut watched = progress.rest.lock();
        let entry = watched.entry(job).or_default();
        entry.watchers += 1;
        Self { progress, job, listening: entry.notice.listen() }
    }
}

impl Future for JobRest<'_> {
    type Output = Result<(), Fault>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let heard = Pin::new(&mut self.listening).poll(context);
        if let Some(fault) = self.progress.stopped_fast() {
            return Poll::Ready(Err(fault));
        }
        heard.map(Ok)
    }
}

impl Drop for JobRest<'_> {
    fn drop(&mut self) {
        let mut watched = self.progress.rest.lock();
        if let Some(entry) = watched.get_mut(&self.job) {
            entry.watchers -= 1;
            if entry.watchers == 0 {
                watched.remove(&self.job);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use super::*;

    #[test]
    fn a_watcher_hears_of_its_own_job_of_a_loss_and_of_the_end_and_is_forgotten() {
        let progress = Progress::new();
        let (first, second) = (JobId::from_u128(1), JobId::from_u128(2));
        let mut context = Context::from_waker(Waker::noop());
        {
            let mut rest = pin!(JobRest::watch(&progress, first));
            progress.rest.rested(&[second]);
            assert!(rest.as_mut().poll(&mut context).is_pending(), "another job is no matter of this one");
            progress.rest.rested(&[second, first]);
            assert!(matches!(rest.as_mut().poll(&mut context), Poll::Ready(Ok(()))));
        }
        {
            let mut rest = pin!(JobRest::watch(&progress, first));
            assert!(rest.as_mut().poll(&mut context).is_pending());
            progress.lose(3, Fault::Full("full".into()));
            assert!(matches!(rest.as_mut().poll(&mut context), Poll::Ready(Ok(()))));
        }
        {
            let mut rest = pin!(JobRest::watch(&progress, second));
            assert!(rest.as_mut().poll(&mut context).is_pending());
            progress.stop(Fault::Stopped("broken".into()));
            assert!(matches!(rest.as_mut().poll(&mut context), Poll::Ready(Err(_))));
        }
        assert!(progress.rest.lock().is_empty());
    }
}
