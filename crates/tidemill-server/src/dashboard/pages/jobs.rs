//! All jobs: filter, search, and what to do with many at once.

use std::fmt::Write;

use maud::{Markup, html};
use serde_json::json;

use super::super::chart::share;
use super::super::form::{Pairs, query};
use super::super::screen::{Screen, Watch};
use super::super::visit::{Outcome, Sight, Visit};
use super::super::widgets::{
    card, counted_do, cut, empty, moment, number, pager, short_id, span, state, token,
};
use super::Page;
use crate::api::{self, Cancelled, JobSummary, JobsCancelled, JobsResumed, Resumed};
use crate::problem::Problem;

const STATUSES: [&str; 5] = ["running", "failing", "failed", "completed", "cancelled"];
/// Jobs that one form may name.
const MANY_MAX: usize = 200;

pub(super) fn pages() -> Vec<Page> {
    vec![
        Page::new("/jobs", show)
            .filters(&[("status", &STATUSES), ("q", &[]), ("cursor", &[])])
            .live()
            .act("/jobs/many", many),
    ]
}

async fn show(visit: Visit) -> Result<Sight, Problem> {
    let given = |name: &str| visit.query.text(name);
    let search = given("q").map(str::trim);
    // A user who pastes an id wants that job.
    let by_id = search.filter(|text| tidemill_model::JobId::new(text).is_ok());
    let name = search.filter(|_| by_id.is_none());
    let status = given("status").map(str::trim);
    let jobs: api::Page<JobSummary> = if let Some(id) = by_id {
        let found: Option<JobSummary> = visit.api.find(&format!("/v1/jobs/{id}")).await?;
        api::Page { items: found.into_iter().collect(), next_cursor: None }
    } else {
        let asked =
            query(&[("status", status), ("name", name), ("cursor", given("cursor")), ("limit", Some("50"))]);
        visit.api.get(&format!("/v1/jobs{asked}")).await?
    };
    let is_filtered = search.is_some() || status.is_some();
    let next = jobs.next_cursor.as_deref();
    let address = |cursor: Option<&str>| {
        format!("/jobs{}", query(&[("status", status), ("q", search), ("cursor", cursor)]))
    };
    let list = html! {
        @if jobs.items.is_empty() {
            @if is_filtered {
                (empty("No job is like that", &html! { a href="/jobs" { "Show all jobs" } }))
            } @else {
                (empty("No jobs yet", &html! { a href="/submit" { "Submit one" } ", or " code { "tidemill submit job.yaml" } "." }))
            }
        } @else {
            (job_rows(visit.now, &jobs.items, visit.may_submit()))
        }
        (pager(given("cursor").map(|_| address(None)), next.map(|next| address(Some(next)))))
    };
    let body = if visit.may_submit() && !jobs.items.is_empty() {
        html! {
            form method="post" action="/jobs/many" id="many" {
                (token(&visit.viewer))
                input type="hidden" name="back" value=(address(given("cursor")));
                (list)
                div class="bulk" {
                    span class="faint" { "With selected:" }
                    button type="submit" name="deed" value="resume" { "Run failed tasks again" }
                    button type="submit" name="deed" value="cancel" class="danger" { "Cancel" }
                    @if let Some(status) = status.filter(|_| search.is_none() || name.is_some()) {
                        span class="faint" { "With all that match:" }
                        input type="hidden" name="status" value=(status);
                        @if let Some(name) = name { input type="hidden" name="name" value=(name); }
                        @if matches!(status, "failed" | "failing") {
                            button type="submit" name="deed" value="resume-all" { "Run failed tasks of all again" }
                        }
                        @if matches!(status, "running" | "failing") {
                            button type="submit" name="deed" value="cancel-all" class="danger" { "Cancel all" }
                        }
                    }
                }
            }
        }
    } else {
        list
    };
    let screen = Screen::new("jobs", "Jobs")
        .watching(Watch::Tenant)
        .still("head", head(&visit, status, search))
        .live("list", card(status.map_or("All jobs", |_| "Jobs"), &html! { "newest first" }, &body));
    Ok(screen.into())
}

fn head(visit: &Visit, status: Option<&str>, search: Option<&str>) -> Markup {
    html! {
        div class="title" {
            div { h1 { "Jobs" } }
            @if visit.may_submit() { div class="actions" { a class="button primary" href="/submit" { "Submit a job" } } }
        }
        (filter(status, search))
    }
}

fn filter(status: Option<&str>, search: Option<&str>) -> Markup {
    let chip = |own: Option<&'static str>, label: &str| {
        let address = format!("/jobs{}", query(&[("status", own), ("q", search)]));
        html! { a class="chip" href=(address) aria-current=[(own == status).then_some("true")] { (label) } }
    };
    html! {
        form class="filter" method="get" action="/jobs" role="search" {
            input type="search" name="q" value=[search] placeholder="Name or id of a job" aria-label="Name or id of a job";
            @if let Some(status) = status { input type="hidden" name="status" value=(status); }
            button type="submit" { "Search" }
            nav class="chips" aria-label="Status" {
                (chip(None, "all"))
                @for own in STATUSES { (chip(Some(own), own)) }
            }
        }
    }
}

/// Jobs as a table.
pub(super) fn job_rows(now: u64, jobs: &[JobSummary], may_check: bool) -> Markup {
    html! {
        div class="wrap" {
            table class="jobs" {
                thead {
                    tr {
                        @if may_check { th class="check" { input type="checkbox" data-check-all aria-label="Check all" hidden; } }
                        th { "Job" } th { "Status" } th class="wide less" { "Tasks" } th class="num" { "Done" } th { "Created" } th class="num less" { "Took" }
                    }
                }
                tbody {
                    @for job in jobs {
                        tr id={ "row-" (job.job_id) } {
                            @if may_check {
                                td class="check" { input type="checkbox" name="job" value=(job.job_id) aria-label={ "Check " (job.job_id) }; }
                            }
                            td class="name" {
                                a href={ "/jobs/" (job.job_id) } { (cut(job.name.as_deref().unwrap_or("unnamed"), 60)) }
                                (short_id(&job.job_id))
                            }
                            td { (state(job.status.as_str())) }
                            td class="wide less" { (progress(job)) }
                            td class="num" { (number(u64::from(job.counts.completed))) "/" (number(u64::from(job.total_tasks))) }
                            td { (moment(now, job.created_at)) }
                            td class="num less" { @if let Some(end) = job.completed_at { (span(end.saturating_sub(job.created_at))) } @else { span class="faint" { "–" } } }
                        }
                    }
                }
            }
        }
    }
}

/// How far a job is, as a bar.
pub(super) fn progress(job: &JobSummary) -> Markup {
    let counts = job.counts;
    let parts = [
        ("completed", counts.completed),
        ("processing", counts.processing),
        ("pending", counts.pending),
        ("failed", counts.failed),
        ("waiting", counts.waiting),
    ];
    let told = parts.iter().filter(|(_, count)| *count > 0);
    let told: Vec<_> = told.map(|(state, count)| format!("{count} {state}")).collect();
    share(&parts.map(|(state, count)| (state, u64::from(count))), &told.join(", "))
}

/// `1 job runs again`, `2 jobs were cancelled`.
fn done_to(jobs: usize, is_resume: bool) -> String {
    let (one, many) =
        if is_resume { ("runs again", "run again") } else { ("was cancelled", "were cancelled") };
    counted_do(jobs as u64, "job", one, many)
}

async fn many(visit: Visit, form: Pairs) -> Result<Outcome, Problem> {
    let back = form.text("back").filter(|back| back.starts_with("/jobs")).unwrap_or("/jobs").to_owned();
    let (status, name) = (form.text("status"), form.text("name"));
    let all = status.is_none() && name.is_none();
    let filter = json!({"all": all, "status": status, "name": name, "limit": 1_000});
    let more = |more: bool| if more { "; there are more, so do it again" } else { "" };
    match form.text("deed") {
        Some("resume-all") => {
            let done: JobsResumed = visit.api.post("/v1/jobs/retry", &filter).await?;
            let note = format!("{}{}", done_to(done.job_ids.len(), true), more(done.more));
            return Ok(Outcome::go(back, note));
        }
        Some("cancel-all") => {
            let done: JobsCancelled = visit.api.post("/v1/jobs/cancel", &filter).await?;
            let note = format!("{}{}", done_to(done.job_ids.len(), false), more(done.more));
            return Ok(Outcome::go(back, note));
        }
        _ => {}
    }
    let ids: Vec<&str> = form.all("job").take(MANY_MAX).collect();
    if ids.is_empty() {
        return Ok(Outcome::go(back, "No job was checked."));
    }
    let is_resume = form.text("deed") == Some("resume");
    let (mut done, mut refused) = (0, Vec::new());
    for id in ids {
        let id = super::super::form::encode(id);
        let result = if is_resume {
            visit.api.post::<Resumed>(&format!("/v1/jobs/{id}/resume"), &json!({})).await.map(drop)
        } else {
            visit.api.post::<Cancelled>(&format!("/v1/jobs/{id}/cancel"), &json!({})).await.map(drop)
        };
        match result {
            Ok(()) => done += 1,
            // What one job refuses, such as being over already, is no reason to leave out the others.
            Err(problem) if problem.status.as_u16() == 409 => refused.push(problem.detail),
            Err(problem) => return Err(problem),
        }
    }
    let mut note = done_to(done, is_resume);
    if let Some(first) = refused.first() {
        let _ = write!(note, "; {} not: {first}", refused.len());
    }
    Ok(Outcome::go(back, note))
}
