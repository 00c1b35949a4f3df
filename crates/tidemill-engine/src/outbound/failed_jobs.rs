//! Failed jobs that raise an alert for people: which they are, and how many one alert reports.
//!
//! A failure waits a little for others of its tenant, and one alert reports all of them. So however many jobs fail,
//! people get at most one alert in that time.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tidemill_model::{JobId, TaskId, TenantId};

use crate::engine::limits::NAME_BYTES_MAX;

/// The kind of alerts about failed jobs.
pub const JOB_FAILED: &str = "job_failed";
/// Jobs that one alert names; the others are counted.
pub const JOBS_NAMED_MAX: usize = 10;

/// Which failed jobs raise an alert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobFailedAlerts {
    /// Without any, all.
    names: Vec<Pattern>,
    /// How long a failure waits for others, in milliseconds.
    pub gather_millis: u64,
}

/// `NAME` of any tenant, or `TENANT/NAME`. A `*` stands for any characters.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pattern {
    tenant: Option<String>,
    name: String,
}

impl JobFailedAlerts {
    /// A list with commas: `nightly`, `etl-*`, `acme/nightly`, `acme/*`. An empty one means every job.
    pub fn parse(names: &str, gather_millis: u64) -> Self {
        let entries = names.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        let pattern = |entry: &str| match entry.split_once('/') {
            Some((tenant, name)) => Pattern { tenant: Some(tenant.to_owned()), name: name.to_owned() },
            None => Pattern { tenant: None, name: entry.to_owned() },
        };
        Self { names: entries.map(pattern).collect(), gather_millis }
    }

    /// What is wrong with a list, if one of its entries can fit no job of any tenant.
    pub fn problem_of(names: &str) -> Option<String> {
        let entries = names.split(',').map(str::trim).filter(|entry| !entry.is_empty());
        entries.into_iter().find_map(|entry| {
            let (tenant, name) = entry.split_once('/').unwrap_or(("*", entry));
            // A star may stand for nothing, or for what makes an id of the rest.
            let is_tenant = tenant == "*"
                || TenantId::new(tenant.replace('*', "")).is_ok()
                || TenantId::new(tenant.replace('*', "x")).is_ok();
            let problem = if !is_tenant {
                "no tenant has the name before its /; a / of the job's own name is written */NAME"
            } else if name.is_empty() {
                "there is no name behind its /; * stands for all of them"
            } else if name.chars().any(char::is_control) {
                "no job's name holds control characters"
            } else if name.replace('*', "").len() > NAME_BYTES_MAX {
                "no job's name is as long"
            } else {
                return None;
            };
            Some(format!("has the entry {entry:?}, which fits no job: {problem}"))
        })
    }

    /// Whether the failure of a job raises an alert. A job without a name does where any name will do.
    pub fn want(&self, tenant: &TenantId, name: Option<&str>) -> bool {
        let fits = |pattern: &Pattern| {
            let of_tenant = pattern.tenant.as_ref().is_none_or(|own| fits(own, tenant.as_str()));
            of_tenant && fits(&pattern.name, name.unwrap_or_default())
        };
        self.names.is_empty() || self.names.iter().any(fits)
    }
}

/// Whether a text is what a pattern says. Each part between two stars is looked for once, so it takes no longer than
/// both are long.
fn fits(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

/// What one alert gathers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedJobs {
    /// How many failed, those that are not named included.
    pub count: u32,
    /// The first of them, at most [`JOBS_NAMED_MAX`].
    pub named: Vec<FailedJob>,
}

impl FailedJobs {
    pub fn add(&mut self, job: FailedJob) {
        self.count = self.count.saturating_add(1);
        if self.named.len() < JOBS_NAMED_MAX {
            self.named.push(job);
        }
    }

    /// About how many bytes it takes.
    pub fn len(&self) -> usize {
        let of =
            |job: &FailedJob| 64 + job.task.as_str().len() + job.name.as_ref().map_or(0, |name| name.len());
        self.named.iter().map(of).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

/// A job that came to rest and had failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FailedJob {
    pub job: JobId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// The task that failed; the last one if there are more.
    pub task: TaskId,
    /// How many of its tasks failed.
    pub tasks: u32,
    /// The run of the task that failed: what it said stays what is told, though a resume has begun another one. None in
    /// what was written before this was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_tenants_decide_what_is_told() {
        for (list, tenant, name, expected) in [
            ("", "acme", None, true),
            (" , ", "acme", Some("x"), true),
            ("nightly", "acme", Some("nightly"), true),
            ("nightly", "acme", Some("nightly-2"), false),
            ("nightly", "acme", None, false),
            ("*", "acme", None, true),
            ("etl-*,nightly", "other", Some("etl-"), true),
            ("etl-*, nightly", "other", Some("nightly"), true),
            ("*-etl", "acme", Some("a-etl"), true),
            ("*-etl", "acme", Some("a-etl-b"), false),
            ("a*b*c", "acme", Some("a-b-b-c"), true),
            ("a*b*c", "acme", Some("a-c-b"), false),
            ("a*a", "acme", Some("a"), false),
            ("acme/nightly", "acme", Some("nightly"), true),
            ("acme/nightly", "other", Some("nightly"), false),
            ("acme/*", "acme", None, true),
            ("ac*/n*", "acme", Some("nightly"), true),
            ("*/a/b", "acme", Some("a/b"), true),
            ("a/b", "acme", Some("a/b"), false),
        ] {
            let told = JobFailedAlerts::parse(list, 1).want(&TenantId::trusted(tenant), name);
            assert_eq!(told, expected, "{list} and {name:?} of {tenant}");
        }
    }

    #[test]
    fn an_entry_that_fits_no_job_is_named() {
        let long = format!("{}*", "x".repeat(200));
        for list in ["", " , ", "nightly, etl-*", "acme/*", "*/a/b", "ac*/n*", "*", "*/x", "a//b", &long] {
            assert_eq!(JobFailedAlerts::problem_of(list), None, "{list}");
        }
        let too_long = "x".repeat(201);
        for (list, entry) in [
            ("nightly, /x", "/x"),
            ("acme/", "acme/"),
            ("a b/x, nightly", "a b/x"),
            ("https://host/x", "https://host/x"),
            ("a\tb", "a\tb"),
            (&too_long, &too_long),
        ] {
            let problem = JobFailedAlerts::problem_of(list).unwrap_or_default();
            assert!(
                problem.starts_with(&format!("has the entry {entry:?}, which fits no job: ")),
                "{problem}"
            );
        }
    }

    #[test]
    fn the_first_are_named_and_all_are_counted() {
        let job = |n| FailedJob {
            job: JobId::from_u128(n),
            name: None,
            task: TaskId::trusted("a"),
            tasks: 1,
            run: Some(1),
        };
        let mut failed = FailedJobs::default();
        (0..1_000).for_each(|n| failed.add(job(n)));
        assert_eq!((failed.count, failed.named.len()), (1_000, JOBS_NAMED_MAX));
        assert_eq!(failed.named[0], job(0));
    }
}
