//! One execution of a workflow, or one of our tasks that failed: where it is, its errors, and how it goes on.

use maud::{Markup, html};
use serde_json::{Value, json};
use tidemill_model::Timestamp;

use super::super::form::{Pairs, encode, query};
use super::super::screen::{Screen, Watch};
use super::super::visit::{Outcome, Sight, Visit};
use super::super::widgets::{
    card, confirm, counted_do, empty, id, json as json_block, maybe_moment, moment, number, state, token,
};
use super::Page;
use super::error::error_rows;
use super::errors::{decide, past};
use super::parked::codes;
use crate::api::{OutcomeView, TokenStateName, WorkflowExecutionView};
use crate::problem::Problem;

pub(super) fn pages() -> Vec<Page> {
    vec![
        Page::new("/workflow/{id}", show)
            .live()
            .act("/workflow/{id}/resume", resume)
            .act("/workflow/{id}/fail", fail)
            .act("/workflow/{id}/mark", mark),
    ]
}

/// The address of an execution.
pub(super) fn address(execution: &str) -> String {
    format!("/workflow/{}", encode(execution))
}

fn route(execution: &str) -> String {
    format!("/v1/workflow/executions/{}", encode(execution))
}

/// What an execution is, in one word.
fn word(view: &WorkflowExecutionView) -> &'static str {
    use tidemill_model::workflow::WorkflowStatus;
    match view.status {
        _ if view.parked => "parked",
        WorkflowStatus::Scheduled => "pending",
        WorkflowStatus::InProgress => "processing",
        WorkflowStatus::Succeeded => "completed",
        WorkflowStatus::Failed => "failed",
    }
}

async fn show(visit: Visit) -> Result<Sight, Problem> {
    let view: WorkflowExecutionView = visit.api.get(&route(visit.part("id"))).await?;
    let execution = view.execution_id.as_str();
    let open = view.errors.iter().filter(|error| error.state.as_str() == "open").count();
    let mark_path = format!("{}/mark", address(execution));
    let marks = html! {
        @if visit.may_submit() && open > 0 {
            form method="post" action=(mark_path) class="bulk" {
                (token(&visit.viewer))
                span class="faint" { "All of its errors:" }
                input name="reason" maxlength="1000" placeholder="why, optional" aria-label="Why";
                button type="submit" name="deed" value="resolve" { "Resolve" }
                button type="submit" name="deed" value="fail" class="danger" { "Unrecoverable" }
            }
        }
    };
    let errors = html! {
        @if view.errors.is_empty() { (empty("No errors", &html! { "It failed without saying why, or has not failed." })) }
        @else { (error_rows(&view.errors, true, visit.now)) (marks) }
    };
    let screen = Screen::new("parked", execution.to_owned())
        .watching(Watch::Tenant)
        .live("execution", header(&visit, &view))
        .live("outcome", outcome(view.outcome.as_ref(), visit.now))
        .live("errors", card("Errors", &html! { (number(open as u64)) " open" }, &errors));
    Ok(screen.into())
}

fn header(visit: &Visit, view: &WorkflowExecutionView) -> Markup {
    let execution = view.execution_id.as_str();
    let events = match &view.request_id {
        Some(request) => format!("/tasks/{}", encode(request)),
        None => format!("/events{}", query(&[("entity", Some(&format!("WORKFLOW/{execution}")))])),
    };
    let at = |time: Option<Timestamp>| maybe_moment(visit.now, time.map(Timestamp::millis));
    html! {
        div class="title" {
            div {
                nav class="crumbs" aria-label="Where" { a href="/parked" { "Parked" } }
                h1 { @if let Some(county) = view.named_county() { (county) " " } (view.step) " " (state(word(view))) }
                p class="faint" { (id(execution, execution)) }
            }
            @if view.parked && visit.is_admin() {
                div class="actions" { (unpark(visit, execution, view.request_id.is_some(), false)) }
            }
        }
        dl class="facts" {
            @if let Some(county) = view.named_county() { div { dt { "County" } dd { (county) } } }
            @if let Some(label) = &view.data_group_label { div { dt { "Data group" } dd { (label) } } }
            div { dt { "Phase" } dd { (view.phase) } }
            div { dt { "Step" } dd { (view.step) @if view.unknown_place { span class="faint" { " unknown" } } } }
            @if view.parked {
                div { dt { "Parked" } dd { (at(view.parked_at)) } }
                div { dt { "Expires" } dd { (at(view.deadline)) } }
            }
            div { dt { "Codes" } dd { (codes(view)) } }
            div { dt { "Token" } dd { (token_word(view.token)) } }
            div { dt { "First event" } dd { (at(view.first_event_at)) } }
            div { dt { "Last event" } dd { (at(view.last_event_at)) } }
            div { dt { "More" } dd { a href=(events) { (if view.request_id.is_some() { "the task" } else { "its events" }) } } }
        }
    }
}

fn token_word(token: TokenStateName) -> &'static str {
    match token {
        TokenStateName::None => "none",
        TokenStateName::Unused => "unused",
        TokenStateName::Used => "used",
        TokenStateName::Expired => "expired",
        TokenStateName::Replaced => "replaced",
    }
}

fn outcome(outcome: Option<&OutcomeView>, now: u64) -> Markup {
    let Some(outcome) = outcome else { return html! {} };
    let body = html! {
        p {
            (state(outcome.kind.as_str())) " " (moment(now, outcome.at.millis()))
            @if let Some(by) = &outcome.by { " by " (by) }
            @if let Some(reason) = &outcome.reason { ": " (reason) }
        }
        @if let Some(output) = &outcome.output { (json_block(output)) }
        @if let Some(error) = &outcome.error { p class="error-text" { (error) @if let Some(cause) = &outcome.cause { ": " (cause) } } }
    };
    card("How its last wait ended", &html! {}, &body)
}

/// The forms that end a wait. `from_task`: the page of the task is where they lead back to.
pub(super) fn unpark(visit: &Visit, execution: &str, is_task: bool, from_task: bool) -> Markup {
    let path = address(execution);
    let back = html! { @if from_task { input type="hidden" name="from" value="task"; } };
    let why = html! { input name="reason" maxlength="1000" placeholder="why, optional" aria-label="Why"; };
    html! {
        @if is_task {
            form method="post" action={ (path) "/resume" } class="inline" {
                (token(&visit.viewer)) (back)
                input type="hidden" name="mode" value="rerun";
                button type="submit" class="primary" { "Run again" }
            }
        }
        (confirm(&visit.viewer, &format!("{path}/resume"), if is_task { "Resume with output" } else { "Resume" }, if is_task { "" } else { "primary" }, &html! {
            (back)
            label { (if is_task { "Taken for the task's own output, as JSON" } else { "What it goes on with, as JSON" }) textarea class="code" name="output" rows="3" spellcheck="false" placeholder="{\"resolved\": true}" {} }
            (why)
            button type="submit" class="primary" { "Resume" }
        }))
        (confirm(&visit.viewer, &format!("{path}/fail"), "Fail", "danger", &html! {
            (back)
            p { "It waits no more and has failed for good." }
            input name="error" maxlength="256" placeholder="ResolutionFailed" aria-label="Error";
            input name="cause" maxlength="2000" placeholder="Unable to resolve errors" aria-label="Cause";
            (why)
            button type="submit" class="danger" { "Fail it" }
        }))
    }
}

/// The output that somebody typed; null when nothing was.
pub(super) fn output_of(form: &Pairs) -> Result<Value, Problem> {
    let Some(text) = form.text("output") else { return Ok(Value::Null) };
    serde_json::from_str(text)
        .map_err(|error| Problem::invalid_field("output", format!("is no JSON: {error}")))
}

fn back_to(visit: &Visit, form: &Pairs) -> String {
    let execution = visit.part("id");
    if form.text("from") == Some("task") {
        format!("/tasks/{}", encode(execution))
    } else {
        address(execution)
    }
}

async fn resume(visit: Visit, form: Pairs) -> Result<Outcome, Problem> {
    let mut wish = json!({"reason": form.text("reason")});
    let is_rerun = form.text("mode") == Some("rerun");
    if is_rerun {
        wish["mode"] = json!("rerun");
    } else {
        wish["output"] = output_of(&form)?;
    }
    let path = format!("{}/resume", route(visit.part("id")));
    let _: WorkflowExecutionView = visit.api.post(&path, &wish).await?;
    Ok(Outcome::go(back_to(&visit, &form), if is_rerun { "It runs again." } else { "It goes on." }))
}

async fn fail(visit: Visit, form: Pairs) -> Result<Outcome, Problem> {
    let wish =
        json!({"reason": form.text("reason"), "error": form.text("error"), "cause": form.text("cause")});
    let path = format!("{}/fail", route(visit.part("id")));
    let _: WorkflowExecutionView = visit.api.post(&path, &wish).await?;
    Ok(Outcome::go(back_to(&visit, &form), "It has failed."))
}

async fn mark(visit: Visit, form: Pairs) -> Result<Outcome, Problem> {
    let deed = form.text("deed").filter(|deed| *deed != "ignore").unwrap_or_default();
    let scope = json!({"executionId": visit.part("id")});
    let changed = decide(&visit, deed, scope, &form).await?;
    let note = format!("{} {}.", counted_do(changed, "error", "is", "are"), past(deed));
    Ok(Outcome::go(address(visit.part("id")), note))
}
