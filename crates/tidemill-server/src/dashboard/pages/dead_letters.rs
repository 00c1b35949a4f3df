//! Dead letters: work that was given up, to be looked at and done again or put aside.

use maud::{Markup, html};
use serde_json::json;
use tidemill_model::work::last_error::in_short;

use super::super::form::{Pairs, encode, query};
use super::super::screen::{Screen, Watch};
use super::super::visit::{Outcome, Sight, Visit};
use super::super::widgets::{
    button, card, confirm, cut, empty, id, id_link, json_text, moment, pager, shortened, state, token,
};
use super::Page;
use crate::api::{self, DeadLetterView, LetterState, ManyLettersView, Replayed};
use crate::problem::Problem;

const STATES: [&str; 3] = ["open", "replayed", "discarded"];
const KINDS: [(&str, &str); 3] = [("task", "of tasks"), ("script", "of scripts"), ("event", "of events")];
/// Letters that one form may name.
const MANY_MAX: usize = 200;

pub(super) fn pages() -> Vec<Page> {
    vec![
        Page::new("/dead-letters", show)
            .filters(&[("kind", &["task", "script", "event"]), ("state", &STATES), ("cursor", &[])])
            .live()
            .act("/dead-letters/many", many),
        Page::new("/dead-letters/{id}", one)
            .live()
            .act("/dead-letters/{id}/replay", replay)
            .act("/dead-letters/{id}/discard", discard),
    ]
}

fn word(state: LetterState) -> &'static str {
    match state {
        LetterState::Open => "open",
        LetterState::Replayed => "replayed",
        LetterState::Discarded => "discarded",
    }
}

/// What a list needs of a letter: id, state, since when, what it is about, why.
fn parts_of(letter: &DeadLetterView) -> (&str, LetterState, u64, Markup, String) {
    match letter {
        DeadLetterView::Task(letter) => {
            let about = html! { a href={ "/tasks/" (letter.request_id) } title=(letter.request_id) { (shortened(&letter.request_id)) } span class="faint" { " run " (letter.run) } };
            (&letter.id, letter.state, letter.since, about, letter.why().to_owned())
        }
        DeadLetterView::Script(letter) => {
            let about = html! { a href={ "/scripts/" (letter.script_id) } { (letter.script_id) } span class="faint" { " for " (letter.event_type) } };
            let why = format!("{}: {}", letter.error_class, letter.error_message);
            (&letter.id, letter.state, letter.failed_at.millis(), about, why)
        }
        DeadLetterView::Event(letter) => {
            let to = letter.url.as_deref().unwrap_or(&letter.target);
            let about = html! { (letter.event_type) span class="faint" { " to " (cut(to, 60)) } };
            (&letter.id, letter.state, letter.failed_at.millis(), about, letter.error_message.clone())
        }
    }
}

/// The kind that was asked for, or the first.
fn kind_of(given: Option<&str>) -> &'static str {
    KINDS.into_iter().map(|(kind, _)| kind).find(|kind| given == Some(kind)).unwrap_or(KINDS[0].0)
}

async fn show(visit: Visit) -> Result<Sight, Problem> {
    let given = |name: &str| visit.query.text(name);
    let kind = kind_of(given("kind"));
    let shown = given("state").filter(|state| STATES.contains(state)).unwrap_or("open");
    let asked = query(&[
        ("kind", Some(kind)),
        ("state", Some(shown)),
        ("cursor", given("cursor")),
        ("limit", Some("50")),
    ]);
    let letters: api::Page<DeadLetterView> = visit.api.get(&format!("/v1/dead-letters{asked}")).await?;
    let address = |kind: &str, state: &str, cursor: Option<&str>| {
        format!("/dead-letters{}", query(&[("kind", Some(kind)), ("state", Some(state)), ("cursor", cursor)]))
    };
    let may = visit.is_admin() && shown == "open" && !letters.items.is_empty();
    let list = html! {
        @if letters.items.is_empty() {
            @if shown == "open" {
                (empty("Nothing was given up", &html! { "A task that uses up its deliveries, a script that fails for good and an event that never arrives would be here." }))
            } @else {
                (empty("None", &html! { a href="/dead-letters" { "Show open ones" } }))
            }
        } @else {
            div class="wrap" {
                table {
                    thead { tr { @if may { th class="check" { input type="checkbox" data-check-all aria-label="Check all" hidden; } } th { "Letter" } th { "About" } th class="wide" { "Why" } th { "Since" } th { "State" } } }
                    tbody {
                        @for letter in &letters.items {
                            @let (letter_id, letter_state, since, about, why) = parts_of(letter);
                            tr {
                                @if may { td class="check" { input type="checkbox" name="letter" value=(letter_id) aria-label={ "Check " (letter_id) }; } }
                                td { (id_link(&format!("/dead-letters/{letter_id}"), letter_id)) }
                                td { (about) }
                                td class="wide" { (cut(&in_short(&why), 100)) }
                                td { (moment(visit.now, since)) }
                                td { (state(word(letter_state))) }
                            }
                        }
                    }
                }
            }
        }
        (pager(given("cursor").map(|_| address(kind, shown, None)), letters.next_cursor.as_deref().map(|next| address(kind, shown, Some(next)))))
    };
    let body = if may {
        html! {
            form method="post" action="/dead-letters/many" {
                (token(&visit.viewer))
                input type="hidden" name="kind" value=(kind);
                (list)
                div class="bulk" {
                    span class="faint" { "With selected:" }
                    button type="submit" name="deed" value="replay" { "Replay" }
                    button type="submit" name="deed" value="discard" class="danger" { "Discard" }
                    span class="faint" { "With all open ones:" }
                    button type="submit" name="deed" value="replay-all" { "Replay all" }
                    button type="submit" name="deed" value="discard-all" class="danger" { "Discard all" }
                }
            }
        }
    } else {
        list
    };
    let head = html! {
        h1 { "Dead letters" }
        div class="filter" {
            nav class="chips" aria-label="Kind" {
                @for (own, label) in KINDS { a class="chip" href=(address(own, shown, None)) aria-current=[(own == kind).then_some("true")] { (label) } }
            }
            nav class="chips" aria-label="State" {
                @for own in STATES { a class="chip" href=(address(kind, own, None)) aria-current=[(own == shown).then_some("true")] { (own) } }
            }
        }
    };
    let screen = Screen::new("dead-letters", "Dead letters")
        .with_letters()
        .watching(Watch::Tenant)
        .still("head", head)
        .live("list", card("Letters", &html! { "oldest first" }, &body));
    Ok(screen.into())
}

async fn one(visit: Visit) -> Result<Sight, Problem> {
    let letter: DeadLetterView =
        visit.api.get(&format!("/v1/dead-letters/{}", encode(visit.part("id")))).await?;
    let (letter_id, letter_state, since, about, why) = parts_of(&letter);
    let path = format!("/dead-letters/{letter_id}");
    let head = html! {
        div class="title" {
            div {
                nav class="crumbs" aria-label="Where" { a href="/dead-letters" { "Dead letters" } }
                h1 { "Dead letter " (state(word(letter_state))) }
                p class="faint" { (id(letter_id, letter_id)) " since " (moment(visit.now, since)) }
            }
            @if visit.is_admin() && letter_state == LetterState::Open {
                div class="actions" {
                    (button(&visit.viewer, &format!("{path}/replay"), "Replay", "primary"))
                    (confirm(&visit.viewer, &format!("{path}/discard"), "Discard", "danger", &html! {
                        p { "It stays on record and is not done again." }
                        button type="submit" class="danger" { "Discard this letter" }
                    }))
                }
            }
        }
        dl class="facts" { div { dt { "About" } dd { (about) } } }
        div class="problem" { pre { (why) } }
    };
    let detail = match &letter {
        DeadLetterView::Task(letter) => html! {
            @if letter.why() != letter.reason { p class="faint" { (letter.reason) } }
        },
        DeadLetterView::Script(letter) => html! {
            @if !letter.stack_trace.is_empty() { (card("Stack", &html! {}, &html! { pre class="log" { (letter.stack_trace) } })) }
            @if let Some(data) = &letter.event_data { (card("Event data", &html! { code { (letter.event_id.to_string()) } }, &json_text(&data.to_string()))) }
            @if let Some(execution) = &letter.replayed_by { p { "Replayed by execution " code { (execution) } } }
        },
        DeadLetterView::Event(letter) => html! {
            @if let Some(body) = &letter.body { (card("What was to be told", &html! { code { (letter.event_id.to_string()) } }, &json_text(&body.to_string()))) }
            @if let Some(delivery) = &letter.replayed_by { p { "Replayed as delivery " code { (delivery) } } }
        },
    };
    let screen = Screen::new("dead-letters", "Dead letter")
        .with_letters()
        .watching(Watch::Tenant)
        .live("letter", head)
        .live("detail", detail);
    Ok(screen.into())
}

async fn replay(visit: Visit, _: Pairs) -> Result<Outcome, Problem> {
    let id = encode(visit.part("id"));
    let done: Replayed = visit.api.post(&format!("/v1/dead-letters/{id}/replay"), &json!({})).await?;
    let note = match (&done.request_id, &done.execution_id) {
        (Some(request), _) => format!("Replayed: task {request} runs again."),
        (None, Some(execution)) => format!("Replayed by execution {execution}."),
        (None, None) => match &done.delivery_id {
            Some(delivery) => format!("Replayed as delivery {delivery}."),
            None => "Replayed.".to_owned(),
        },
    };
    Ok(Outcome::go(format!("/dead-letters/{id}"), note))
}

async fn discard(visit: Visit, _: Pairs) -> Result<Outcome, Problem> {
    let id = encode(visit.part("id"));
    let _: DeadLetterView = visit.api.post(&format!("/v1/dead-letters/{id}/discard"), &json!({})).await?;
    Ok(Outcome::go(format!("/dead-letters/{id}"), "Discarded."))
}

async fn many(visit: Visit, form: Pairs) -> Result<Outcome, Problem> {
    let kind = kind_of(form.text("kind"));
    let back = format!("/dead-letters{}", query(&[("kind", Some(kind))]));
    let Some((deed, is_all)) =
        form.text("deed").map(|deed| (deed.trim_end_matches("-all"), deed.ends_with("-all")))
    else {
        return Err(Problem::field("MISSING_FIELD", "deed", "is missing"));
    };
    let past = match deed {
        "replay" => "replayed",
        "discard" => "discarded",
        _ => return Err(Problem::field("INVALID_FIELD", "deed", "must be replay or discard")),
    };
    if is_all {
        let done: ManyLettersView =
            visit.api.post(&format!("/v1/dead-letters/{deed}"), &json!({"kind": kind, "all": true})).await?;
        let more = if done.more { "; there are more, so do it again" } else { "" };
        return Ok(Outcome::go(back, format!("{} {past}{more}.", were(done.ids.len()))));
    }
    let (mut done, mut refused) = (0, 0);
    for id in form.all("letter").take(MANY_MAX) {
        let path = format!("/v1/dead-letters/{}/{deed}", encode(id));
        match visit.api.post::<serde_json::Value>(&path, &json!({})).await {
            Ok(_) => done += 1,
            // Somebody else was faster.
            Err(problem) if problem.status.as_u16() == 409 => refused += 1,
            Err(problem) => return Err(problem),
        }
    }
    let others = if refused > 0 { format!("; {} no longer open", were(refused)) } else { String::new() };
    Ok(Outcome::go(back, format!("{} {past}{others}.", were(done))))
}

/// `1 was`, `2 were`.
fn were(count: usize) -> String {
    format!("{count} {}", if count == 1 { "was" } else { "were" })
}
