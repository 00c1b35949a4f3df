//! Commits as a backend writes them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tidemill_model::KnownType;

use crate::kernel::commit::{Commit, RecordWrite};
use crate::metrics::histogram::{Bounds, Histogram, HistogramMetrics};

/// Counts the groups that reach the disk. A backend has one of its own.
#[derive(Debug)]
pub struct CommitMeter {
    seconds: Histogram,
    events: Histogram,
    bytes: AtomicU64,
    created: AtomicU64,
    completed: AtomicU64,
    failures: AtomicU64,
    cancelled: AtomicU64,
}

/// What became of jobs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JobEvents {
    pub created: u64,
    pub completed: u64,
    /// Tasks that failed for good, each told once for its job.
    pub failures: u64,
    pub cancelled: u64,
}

/// The commits so far. `seconds.count` is their number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitMetrics {
    /// From the first byte to the end of the sync.
    pub seconds: HistogramMetrics,
    /// Events in each.
    pub events: HistogramMetrics,
    pub bytes: u64,
    pub jobs: JobEvents,
}

impl Default for CommitMeter {
    fn default() -> Self {
        Self {
            seconds: Histogram::new(Bounds::LATENCY),
            events: Histogram::new(Bounds::SIZE),
            bytes: AtomicU64::new(0),
            created: AtomicU64::new(0),
            completed: AtomicU64::new(0),
            failures: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
        }
    }
}

impl Default for CommitMetrics {
    fn default() -> Self {
        CommitMeter::default().read()
    }
}

impl CommitMeter {
    /// A group is on disk.
    pub fn wrote(&self, took: Duration, events: usize, bytes: usize, jobs: JobEvents) {
        self.seconds.took(took);
        self.events.add(events as u64);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        for (counter, count) in [
            (&self.created, jobs.created),
            (&self.completed, jobs.completed),
            (&self.failures, jobs.failures),
            (&self.cancelled, jobs.cancelled),
        ] {
            if count > 0 {
                counter.fetch_add(count, Ordering::Relaxed);
            }
        }
    }

    pub fn read(&self) -> CommitMetrics {
        CommitMetrics {
            seconds: self.seconds.read(),
            events: self.events.read(),
            bytes: self.bytes.load(Ordering::Relaxed),
            jobs: JobEvents {
                created: self.created.load(Ordering::Relaxed),
                completed: self.completed.load(Ordering::Relaxed),
                failures: self.failures.load(Ordering::Relaxed),
                cancelled: self.cancelled.load(Ordering::Relaxed),
            },
        }
    }
}

impl JobEvents {
    /// Adds what a commit says of jobs. Commits that only publish are not looked through.
    pub fn note(&mut self, commit: &Commit) {
        let is_of_jobs =
            |write: &RecordWrite| matches!(write, RecordWrite::Job(_) | RecordWrite::JobCancelled { .. });
        if commit.tasks.is_empty() && !commit.records.iter().any(is_of_jobs) {
            return;
        }
        for event in &commit.events {
            match KnownType::from_name(event.event_type.as_str()) {
                Some(KnownType::JobCreated) => self.created += 1,
                Some(KnownType::JobCompleted) => self.completed += 1,
                Some(KnownType::JobFailureDetected) => self.failures += 1,
                Some(KnownType::JobCancelled) => self.cancelled += 1,
                _ => {}
            }
        }
    }
}
