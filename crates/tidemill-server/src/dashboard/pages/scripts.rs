//! Scripts and what they did lately.

use maud::{Markup, html};
use tidemill_matcher::Subscription;

use super::super::form::{encode, query};
use super::super::screen::{Screen, Watch};
use super::super::visit::{Sight, Visit};
use super::super::widgets::{
    bytes, card, cut, empty, id_link, json, json_text, moment, pager, short_id, span, state,
};
use super::Page;
use crate::api::{self, ExecutionView, ScriptSummary};
use crate::problem::Problem;

pub(super) fn pages() -> Vec<Page> {
    vec![Page::new("/scripts", show).live(), Page::new("/executions/{id}", execution).live()]
}

async fn show(visit: Visit) -> Result<Sight, Problem> {
    let given = |name: &str| visit.query.text(name);
    let asked = query(&[("cursor", given("cursor")), ("limit", Some("50"))]);
    let scripts: api::Page<ScriptSummary> = visit.api.get(&format!("/v1/scripts{asked}")).await?;
    let subscriptions: api::Page<Subscription> = visit.api.get("/v1/subscriptions?limit=200").await?;
    let executions: api::Page<ExecutionView> = visit.api.get("/v1/executions?limit=20").await?;
    let next =
        scripts.next_cursor.as_deref().map(|next| format!("/scripts{}", query(&[("cursor", Some(next))])));
    let list = html! {
        @if scripts.items.is_empty() {
            (empty("No scripts yet", &html! {
                "A script runs for events that match its subscriptions. "
                @if visit.is_admin() { a href="/scripts/new" { "Write one" } "." } @else { "An admin can write one." }
            }))
        } @else {
            div class="wrap" {
                table {
                    thead { tr { th { "Script" } th { "Subscriptions" } th class="less" { "Permissions" } th class="num less" { "Version" } th class="num less" { "Size" } th { "Changed" } } }
                    tbody {
                        @for script in &scripts.items {
                            @let own = subscriptions.items.iter().filter(|subscription| subscription.script_id == script.id);
                            tr {
                                td class="name" { a href={ "/scripts/" (script.id) } { (script.name) } span class="faint" { (script.id) } }
                                td {
                                    @for subscription in own.take(4) {
                                        span class="state" data-state=(if subscription.enabled { "enabled" } else { "disabled" }) { (subscription.event_type) } " "
                                    }
                                }
                                td class="faint less" { (script.grants.iter().map(|grant| grant.as_str()).collect::<Vec<_>>().join(", ")) }
                                td class="num less" { (script.version) }
                                td class="num less" { (bytes(script.source_bytes)) }
                                td { (moment(visit.now, script.updated_at.millis())) }
                            }
                        }
                    }
                }
            }
        }
        (pager(given("cursor").map(|_| "/scripts".to_owned()), next))
    };
    let head = html! {
        div class="title" {
            div { h1 { "Scripts" } }
            @if visit.is_admin() { div class="actions" { a class="button primary" href="/scripts/new" { "New script" } } }
        }
    };
    let screen = Screen::new("scripts", "Scripts")
        .watching(Watch::Tenant)
        .still("head", head)
        .live("list", card("Scripts", &html! {}, &list))
        .live(
            "executions",
            card("Newest executions", &html! {}, &execution_rows(visit.now, &executions.items)),
        );
    Ok(screen.into())
}

pub(super) fn execution_rows(now: u64, executions: &[ExecutionView]) -> Markup {
    if executions.is_empty() {
        return empty("No execution yet", &html! { "They come with events that match a subscription." });
    }
    html! {
        div class="wrap" {
            table {
                thead { tr { th { "Execution" } th { "Script" } th class="less" { "Event" } th { "Status" } th class="wide" { "Error" } th class="num less" { "Attempts" } th class="num less" { "Took" } th class="less" { "Event was" } } }
                tbody {
                    @for execution in executions {
                        tr {
                            td { (id_link(&format!("/executions/{}", execution.id), &execution.id)) }
                            td { a href={ "/scripts/" (execution.script_id) } { (execution.script_id) } }
                            td class="less" { (execution.event_type) }
                            td { (state(execution.status.as_str())) }
                            td class="wide" { @if let Some(error) = &execution.error { span class="error-text" { (error.class) ": " (cut(&error.message, 80)) } } }
                            td class="num less" { (execution.attempts) }
                            td class="num less" { @if let Some(took) = execution.duration_ms { (span(took)) } }
                            td class="less" { (moment(now, execution.event_timestamp.millis())) }
                        }
                    }
                }
            }
        }
    }
}

async fn execution(visit: Visit) -> Result<Sight, Problem> {
    let execution: ExecutionView =
        visit.api.get(&format!("/v1/executions/{}", encode(visit.part("id")))).await?;
    let now = visit.now;
    let body = html! {
        nav class="crumbs" aria-label="Where" { a href="/scripts" { "Scripts" } " / " a href={ "/scripts/" (execution.script_id) } { (execution.script_id) } }
        h1 { "Execution " (state(execution.status.as_str())) }
        p class="faint" { (short_id(&execution.id)) }
        dl class="facts" {
            div { dt { "Event" } dd { (execution.event_type) " " (moment(now, execution.event_timestamp.millis())) } }
            div { dt { "Event id" } dd { (short_id(&execution.event_id.to_string())) } }
            div { dt { "Subscription" } dd { (short_id(execution.subscription_id.as_str())) } }
            div { dt { "Attempts" } dd { (execution.attempts) } }
            @if let Some(next) = execution.next_run_at { div { dt { "Next" } dd { (moment(now, next.millis())) } } }
            @if let Some(took) = execution.duration_ms { div { dt { "Took" } dd { (span(took)) } } }
            div { dt { "Scripts before it" } dd { (execution.hop) } }
            @if let Some(letter) = &execution.replay_of { div { dt { "Replays" } dd { a href={ "/dead-letters/" (letter) } { (letter) } } } }
        }
        @if let Some(error) = &execution.error {
            div class="problem" { strong { (error.class) } pre { (error.message) @if !error.stack.is_empty() { "\n" (error.stack) } } }
        }
    };
    let more = html! {
        @if let Some(result) = &execution.result { (card("Result", &html! {}, &json(result))) }
        @if let Some(logs) = &execution.logs { (card("Log", &html! {}, &log_lines(logs.as_str()))) }
    };
    let screen = Screen::new("scripts", "Execution")
        .watching(Watch::Tenant)
        .live("execution", body)
        .live("more", more);
    Ok(screen.into())
}

/// Lines of `{"level", "text"}`.
pub(super) fn log_lines(text: &str) -> Markup {
    #[derive(serde::Deserialize)]
    struct Line {
        level: String,
        text: String,
    }
    match serde_json::from_str::<Vec<Line>>(text) {
        Ok(lines) => html! { pre class="log" { @for line in lines { (line.level) ": " (line.text) "\n" } } },
        Err(_) => json_text(text),
    }
}
