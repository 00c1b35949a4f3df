//! Submitting a job: paste or choose a file, see what is wrong with it as it is typed, send it.

use axum::http::StatusCode;
use maud::{Markup, html};

use super::super::form::Pairs;
use super::super::screen::Screen;
use super::super::visit::{Outcome, Sight, Visit};
use super::super::widgets::{card, counted, token};
use super::Page;
use crate::api::{Detail, JobAccepted, JobChecked};
use crate::problem::Problem;
use crate::request::job_text::{TextPlace, TextProblem, WrittenJob};

/// The bytes of a job file that is typed or chosen here. A form grows when it is encoded, three times at worst.
const TEXT_BYTES_MAX: usize = 640 * 1024;

const SAMPLE: &str = "\
name: hello
tasks:
- taskId: fetch
  run: echo fetched
- taskId: store
  run: echo stored
  dependsOn: [fetch]
";

pub(super) fn pages() -> Vec<Page> {
    vec![Page::new("/submit", show).act("/submit", submit)]
}

async fn show(visit: Visit) -> Result<Sight, Problem> {
    Ok(screen(&visit, SAMPLE, &html! {}).into())
}

fn screen(visit: &Visit, text: &str, checked: &Markup) -> Screen {
    let screen = Screen::new("submit", "Submit a job").still("head", html! { h1 { "Submit a job" } });
    if !visit.may_submit() {
        let told = html! { div class="notice" { "Submitting takes a key with the role producer or admin." } };
        return screen.still("form", told);
    }
    let body = html! {
        form method="post" action="/submit" class="stack" id="submit-form" {
            (token(&visit.viewer))
            label hidden data-file { span { "Choose a file, or paste one below" } input type="file" accept=".yaml,.yml,.json,text/yaml,application/json" data-into="job-text" data-most=(TEXT_BYTES_MAX); }
            label for="job-text" { "Job file, YAML or JSON" }
            textarea id="job-text" name="job" rows="20" class="code" spellcheck="false" required data-check="checked" aria-describedby="checked" { (text) }
            div id="checked" role="status" { (checked) }
            div class="row" {
                button type="submit" name="deed" value="submit" class="primary" { "Submit" }
                button type="submit" name="deed" value="check" { "Check" }
            }
            @if !visit.is_admin() { p class="faint" { "Tasks name stored definitions. Commands, agents and scripts within the file take an admin’s key." } }
        }
    };
    screen.still("form", card("Job file", &html! { "checked as you type" }, &body))
}

async fn submit(visit: Visit, form: Pairs) -> Result<Outcome, Problem> {
    let text = form.text("job").unwrap_or_default().to_owned();
    let is_check = form.text("deed") == Some("check");
    let told = |checked: Markup, is_problem: bool| {
        let screen = Box::new(screen(&visit, &text, &checked));
        // A user who asks what is wrong gets what they asked for.
        Ok(Outcome::Show { screen, is_problem: is_problem && !is_check })
    };
    if text.len() > TEXT_BYTES_MAX {
        let limit = TEXT_BYTES_MAX / 1024;
        let message = format!("is longer than {limit} KiB; send it with `tidemill submit`");
        return Err(Problem::invalid_field("job", message));
    }
    let reader = visit.dashboard.app.job_text_reader();
    let own = text.clone();
    // A long text takes a while, and nobody else should wait for it.
    let read =
        tokio::task::spawn_blocking(move || reader(&own)).await.map_err(|error| Problem::internal(&error))?;
    let written = match read {
        Ok(written) => written,
        Err(problems) => return told(wrong(&problems), true),
    };
    if is_check {
        return match visit.api.post::<JobChecked>("/v1/jobs/check", &written.value).await {
            Ok(checked) => told(right(checked.total_tasks), false),
            Err(problem) => told(wrong(&placed(&written, problem)?), true),
        };
    }
    match visit.api.post::<JobAccepted>("/v1/jobs", &written.value).await {
        Ok(job) => Ok(Outcome::go(format!("/jobs/{}", job.job_id), "The job was submitted.")),
        Err(problem) => told(wrong(&placed(&written, problem)?), true),
    }
}

/// What the API found, at its places in the text. What is not about the text is a problem of its own.
fn placed(written: &WrittenJob, problem: Problem) -> Result<Vec<TextProblem>, Problem> {
    let is_of_text = matches!(problem.status, StatusCode::BAD_REQUEST | StatusCode::CONFLICT);
    if problem.status.is_server_error() || (problem.details.is_empty() && !is_of_text) {
        return Err(problem);
    }
    if problem.details.is_empty() {
        let place = TextPlace { line: 1, column: 1 };
        return Ok(vec![TextProblem { place, path: String::new(), message: problem.detail }]);
    }
    let mut all: Vec<_> = problem
        .details
        .into_iter()
        .map(|Detail { field, message, .. }| TextProblem {
            place: (written.place_of)(&field),
            path: field,
            message,
        })
        .collect();
    all.sort_by_key(|problem| problem.place);
    Ok(all)
}

fn right(tasks: u32) -> Markup {
    let tasks = counted(u64::from(tasks), "task");
    html! { p class="good-box" { "This job can be submitted: " (tasks) "." } }
}

fn wrong(problems: &[TextProblem]) -> Markup {
    html! {
        div class="problem" {
            ol class="problems" {
                @for TextProblem { place: TextPlace { line, column }, path, message } in problems {
                    li {
                        button type="button" class="link" data-line=(line) data-column=(column) data-at="job-text" { "line " (line) ", column " (column) }
                        ": " @if !path.is_empty() { code { (path) } " " } (message)
                    }
                }
            }
        }
    }
}
