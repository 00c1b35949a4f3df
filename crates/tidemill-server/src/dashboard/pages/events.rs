//! The events explorer: any of the eight ways to ask, and the event as it is.

use maud::{Markup, html};
use serde::Deserialize;

use super::super::form::query;
use super::super::screen::{Screen, Watch};
use super::super::visit::{Sight, Visit};
use super::super::widgets::{card, empty, exact, json as json_block, moment, pager, shortened};
use super::Page;
use crate::api::{self, EventJson};
use crate::problem::Problem;

pub(super) fn pages() -> Vec<Page> {
    vec![
        Page::new("/events", show)
            .filters(&[
                ("type", &[]),
                ("entity", &[]),
                ("app", &[]),
                ("order", &["asc", "desc"]),
                ("from", &[]),
                ("to", &[]),
                ("cursor", &[]),
            ])
            .live(),
    ]
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Told {
    #[serde(rename = "SK")]
    sort_key: String,
    entity_type: String,
    entity_id: String,
    event_type: String,
    timestamp: u64,
}

async fn show(visit: Visit) -> Result<Sight, Problem> {
    let given = |name: &str| visit.query.text(name).map(str::trim);
    let (kind, about, app) = (given("type"), given("entity"), given("app"));
    let order = given("order").filter(|order| *order == "asc").unwrap_or("desc");
    let (from, to) = (moment_of(given("from"), "from")?, moment_of(given("to"), "to")?);
    let (from_text, to_text) = (from.map(|at| at.to_string()), to.map(|at| at.to_string()));
    let asked = |cursor: Option<&str>, limit: Option<&str>| {
        query(&[
            ("entity", about),
            ("app", app),
            ("type", kind),
            ("from", from_text.as_deref()),
            ("to", to_text.as_deref()),
            ("order", Some(order)),
            ("cursor", cursor),
            ("limit", limit),
        ])
    };
    let events: api::Page<EventJson> =
        visit.api.get(&format!("/v1/events{}", asked(given("cursor"), Some("50")))).await?;
    let address = |cursor: Option<&str>| {
        let mut pairs = vec![("entity", about), ("app", app), ("type", kind), ("order", Some(order))];
        pairs.extend([("from", given("from")), ("to", given("to")), ("cursor", cursor)]);
        format!("/events{}", query(&pairs))
    };
    let list = html! {
        @if events.items.is_empty() {
            (empty("No event is like that", &html! { a href="/events" { "Show all events" } " or publish one: " code { "tidemill events publish" } "." }))
        } @else {
            ol class="events" { @for event in &events.items { (row(visit.now, event)) } }
        }
        (pager(given("cursor").map(|_| address(None)), events.next_cursor.as_deref().map(|next| address(Some(next)))))
    };
    let way = match (kind, app, about) {
        (None, None, None) => "of the tenant",
        (None, None, Some(_)) => "by entity",
        (None, Some(_), None) => "by application",
        (None, Some(_), Some(_)) => "by application and entity",
        (Some(_), None, None) => "by type",
        (Some(_), None, Some(_)) => "by type and entity",
        (Some(_), Some(_), None) => "by type and application",
        (Some(_), Some(_), Some(_)) => "by type, application and entity",
    };
    let filter = html! {
        form class="filter grid" method="get" action="/events" role="search" {
            label { span { "Type" } input name="type" value=[kind] placeholder="Task Failed" list="types"; }
            label { span { "Entity" } input name="entity" value=[about] placeholder="TASK/req-1"; }
            label { span { "Application" } input name="app" value=[app]; }
            label { span { "From" } input name="from" value=[given("from")] placeholder="2026-11-15 or milliseconds"; }
            label { span { "To" } input name="to" value=[given("to")] placeholder="2026-11-15 or milliseconds"; }
            label { span { "Order" } select name="order" {
                option value="desc" selected[order == "desc"] { "newest first" }
                option value="asc" selected[order == "asc"] { "oldest first" }
            } }
            datalist id="types" { @for known in tidemill_model::KnownType::ALL { option value=(known.as_str()) {} } }
            div { button type="submit" class="primary" { "Show" } " " a class="button" href="/events" { "Clear" } }
        }
    };
    // A viewer of a later page, or of the oldest first, would lose the place if the list moved.
    let moves = order == "desc" && given("cursor").is_none();
    let screen = Screen::new("events", "Events")
        .watching(if moves { Watch::Tenant } else { Watch::Nothing })
        .still("head", html! { h1 { "Events" } (filter) })
        .live("list", card("Events", &html! { (way) }, &list));
    Ok(screen.into())
}

/// A day or milliseconds.
fn moment_of(text: Option<&str>, name: &'static str) -> Result<Option<u64>, Problem> {
    let Some(text) = text else { return Ok(None) };
    if let Some(day) = tidemill_model::Day::parse(text) {
        // The last moment of a day is part of it.
        let at = if name == "to" { day.next().start().millis() - 1 } else { day.start().millis() };
        return Ok(Some(at));
    }
    let millis = text.parse().ok().filter(|millis| tidemill_model::Timestamp::new("moment", *millis).is_ok());
    let refuse =
        || Problem::invalid_parameter(name, "must be a day, such as 2026-11-15, or epoch milliseconds");
    millis.map(Some).ok_or_else(refuse)
}

fn row(now: u64, event: &EventJson) -> Markup {
    let Ok(told) = event.0.read::<Told>() else { return html! { li { (json_block(&event.0)) } } };
    let link = match told.entity_type.as_str() {
        "JOB" => Some(("job", format!("/jobs/{}", told.entity_id))),
        "TASK" => Some(("task", format!("/tasks/{}", told.entity_id))),
        _ => None,
    };
    html! {
        li id={ "e-" (told.sort_key) } {
            details {
                summary {
                    span class="event-type" { (told.event_type) }
                    span class="event-entity" {
                        span class="faint" { (told.entity_type) "/" }
                        span title=(told.entity_id) { (shortened(&told.entity_id)) }
                    }
                    span class="event-time" { (moment(now, told.timestamp)) span class="faint small" { (exact(told.timestamp)) } }
                }
                (json_block(&event.0))
            }
            // Beside the fold, not in it: a control within a control cannot be reached by everybody.
            @if let Some((kind, link)) = link { a class="event-link" href=(link) aria-label={ "Open " (kind) " " (told.entity_id) } { "Open " (kind) } }
        }
    }
}
