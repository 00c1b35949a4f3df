//! The pages: one file each, listed here.

mod dead_letters;
mod definitions;
mod error;
mod errors;
mod events;
mod health;
mod job;
mod job_tasks;
mod jobs;
mod overview;
mod parked;
mod script;
mod scripts;
mod settings;
mod submit;
mod task;
mod tasks;
mod trace;
mod usage;
mod workers;
mod workflow;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use super::form::{Filter, Pairs};
use super::visit::{Outcome, Sight, Visit};
use crate::problem::Problem;

/// Makes what a page shows.
pub(super) type Show =
    Arc<dyn Fn(Visit) -> Pin<Box<dyn Future<Output = Result<Sight, Problem>> + Send>> + Send + Sync>;
/// Does what a form asks for.
pub(super) type Act =
    Arc<dyn Fn(Visit, Pairs) -> Pin<Box<dyn Future<Output = Result<Outcome, Problem>> + Send>> + Send + Sync>;

/// A page and the forms that belong to it.
pub(super) struct Page {
    pub(super) path: &'static str,
    pub(super) show: Show,
    pub(super) acts: Vec<(&'static str, Act)>,
    pub(super) is_live: bool,
    /// Whether it may take long to make.
    pub(super) is_large: bool,
}

impl Page {
    fn new<F, R>(path: &'static str, show: F) -> Self
    where
        F: Fn(Visit) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Sight, Problem>> + Send + 'static,
    {
        let show: Show = Arc::new(move |visit| Box::pin(show(visit)));
        Self { path, show, acts: Vec::new(), is_live: false, is_large: false }
    }

    /// It may take long to make, and is made apart.
    fn large(mut self) -> Self {
        self.is_large = true;
        self
    }

    /// It is kept up to date while somebody looks.
    fn live(mut self) -> Self {
        self.is_live = true;
        self
    }

    /// What its address may hold behind the question mark: names, and the words of those that take no other text. A page
    /// that left out what it does not know would show other things than were asked for.
    fn filters(mut self, known: &'static [Filter]) -> Self {
        let show = self.show;
        self.show = Arc::new(move |visit| match visit.query.unknown(known) {
            Some(problem) => Box::pin(std::future::ready(Err(problem))),
            None => show(visit),
        });
        self
    }

    /// What a form that is sent to `path` does.
    fn act<F, R>(mut self, path: &'static str, act: F) -> Self
    where
        F: Fn(Visit, Pairs) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Outcome, Problem>> + Send + 'static,
    {
        self.acts.push((path, Arc::new(move |visit, form| Box::pin(act(visit, form)))));
        self
    }
}

/// The navigation: id, address, label, sign. A page that has no entry belongs to one that has.
pub(super) const NAVIGATION: &[(&str, &str, &str, &str)] = &[
    ("overview", "/", "Overview", "◉"),
    ("submit", "/submit", "Submit", "+"),
    ("jobs", "/jobs", "Jobs", "▤"),
    ("tasks", "/tasks", "Tasks", "▫"),
    ("events", "/events", "Events", "≋"),
    ("errors", "/errors", "Errors", "⚠\u{fe0e}"),
    ("parked", "/parked", "Parked", "‖"),
    ("dead-letters", "/dead-letters", "Dead letters", "✉\u{fe0e}"),
    ("definitions", "/definitions", "Definitions", "≡"),
    ("scripts", "/scripts", "Scripts", "ƒ"),
    ("workers", "/workers", "Workers", "⚒\u{fe0e}"),
    ("health", "/health", "Health", "♥\u{fe0e}"),
    ("usage", "/usage", "Usage", "∑"),
    ("settings", "/settings", "Settings", "⚙\u{fe0e}"),
];

/// All pages.
pub(super) fn all() -> Vec<Page> {
    let mut all = Vec::new();
    all.extend(overview::pages());
    all.extend(submit::pages());
    all.extend(jobs::pages());
    all.extend(job::pages());
    all.extend(tasks::pages());
    all.extend(task::pages());
    all.extend(trace::pages());
    all.extend(events::pages());
    all.extend(errors::pages());
    all.extend(error::pages());
    all.extend(parked::pages());
    all.extend(workflow::pages());
    all.extend(dead_letters::pages());
    all.extend(definitions::pages());
    all.extend(workers::pages());
    all.extend(scripts::pages());
    all.extend(script::pages());
    all.extend(health::pages());
    all.extend(usage::pages());
    all.extend(settings::pages());
    all
}
