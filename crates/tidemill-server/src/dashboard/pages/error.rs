//! One code: what it means, its trend, where it was seen, and what to do about it and about what waits for it.

use maud::{Markup, html};
use serde::Deserialize;

use super::super::chart::Bars;
use super::super::form::{encode, query};
use super::super::screen::{Screen, Watch};
use super::super::visit::{Sight, Visit};
use super::super::widgets::{
    card, confirm, counted, cut, empty, exact, id, json as json_block, moment, number, pager, state, tail,
    token,
};
use super::Page;
use super::errors::{HOURS, about, address, by_hour, count_figures, decided};
use super::parked::{self, Aim};
use crate::api::{ErrorGroupDetailView, ErrorGroupView, ErrorView, MarkView, OccurrenceView, PlaceView};
use crate::problem::Problem;

const STATES: [&str; 4] = ["open", "resolved", "unrecoverable", "ignored"];

/// What the catalogue says of a code.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Known {
    phase: Option<String>,
    category: Option<String>,
    description: Option<String>,
    form: Option<String>,
    county: Option<String>,
}

pub(super) fn pages() -> Vec<Page> {
    vec![Page::new("/errors/{code}", show).filters(&[("state", &STATES), ("cursor", &[])]).live()]
}

async fn show(visit: Visit) -> Result<Sight, Problem> {
    let code = visit.part("code").to_owned();
    let shown = visit.query.text("state").filter(|state| STATES.contains(state));
    let cursor = visit.query.text("cursor");
    let asked = query(&[("state", shown), ("cursor", cursor), ("limit", Some("50"))]);
    let detail: ErrorGroupDetailView =
        visit.api.get(&format!("/v1/workflow/errors/{}{asked}", encode(&code))).await?;
    let known: Known = visit.api.get(&format!("/v1/workflow/catalogue/{}", encode(&code))).await?;
    let waiting = parked::count(&visit, &code).await?;
    let bulks = parked::bulks(&visit, Some(&code)).await?;
    let group = &detail.group;
    let screen = Screen::new("errors", code.clone())
        .watching(Watch::Tenant)
        .live("error", header(&visit, group, &known))
        .live("figures", html! { div class="figures" { (count_figures(&group.counts)) (parked::figure_of(waiting, &code)) } })
        .live("trend", trend(&detail, visit.now))
        .live("bulks", bulks)
        .live("waiting", parked::steer(&visit, waiting, &Aim::code(&code)))
        .live("places", places(&detail.places))
        .live("samples", samples(&detail.samples, visit.now))
        .live("executions", executions(&detail, shown, cursor, visit.now));
    Ok(screen.into())
}

fn header(visit: &Visit, group: &ErrorGroupView, known: &Known) -> Markup {
    let code = group.code.as_str();
    html! {
        div class="title" {
            div {
                nav class="crumbs" aria-label="Where" { a href="/errors" { "Errors" } }
                h1 { (code) " " (decided(group)) }
                p { (about(group)) }
                p class="faint" { (id(code, code)) " first " (moment(visit.now, group.first_seen.millis())) ", last " (moment(visit.now, group.last_seen.millis())) }
            }
            @if visit.may_submit() { div class="actions" { (marks(visit, group)) } }
        }
        dl class="facts" {
            div { dt { "Of" } dd { (group.kind.as_str()) "s" } }
            div { dt { "Type" } dd { (group.error_type) } }
            @if let Some(phase) = &known.phase { div { dt { "Phase" } dd { (phase) } } }
            @if let Some(category) = &known.category { div { dt { "Category" } dd { (category) } } }
            @if let Some(form) = &known.form { div { dt { "In the catalogue as" } dd { code { (form) } } } }
            @if let Some(county) = &known.county { div { dt { "County" } dd { (county) } } }
            @if let Some(text) = known.description.as_deref().filter(|text| *text != about(group)) { div { dt { "Meaning" } dd { (text) } } }
            @for (label, mark) in [("Unrecoverable", &group.unrecoverable_since), ("Ignored", &group.ignored_since), ("Last decided", &group.settled)] {
                @if let Some(mark) = mark { div { dt { (label) } dd { (describe_mark(mark, visit.now)) } } }
            }
        }
    }
}

fn describe_mark(mark: &MarkView, now: u64) -> Markup {
    html! {
        (mark.state.as_str()) " " (moment(now, mark.since.millis()))
        @if let Some(by) = &mark.by { " by " (by) }
        @if let Some(until) = mark.until { ", until " (exact(until.millis())) }
        @if let Some(times) = mark.until_occurrences { ", until it came " (counted(times, "time")) " in all" }
        @if let Some(reason) = &mark.reason { ": " (reason) }
    }
}

/// The forms that decide about a whole code.
fn marks(visit: &Visit, group: &ErrorGroupView) -> Markup {
    let code = group.code.as_str();
    let fields = html! {
        input type="hidden" name="code" value=(code);
        input type="hidden" name="back" value=(address(code));
    };
    let why = html! { input name="reason" maxlength="1000" placeholder="why, optional" aria-label="Why"; };
    let ask = |deed: &str, label: &str, class: &str, text: &str, more: &Markup, last: &str| {
        confirm(
            &visit.viewer,
            "/errors/mark",
            label,
            class,
            &html! {
                (fields) p { (text) } (more) (why)
                button type="submit" name="deed" value=(deed) class=(if class.is_empty() { "primary" } else { class }) { (last) }
            },
        )
    };
    let for_long = html! {
        label { "Hours " input type="number" name="hours" min="1" max="87600" placeholder="until reopened"; }
        label { "More occurrences " input type="number" name="occurrences" min="1" placeholder="however often"; }
    };
    html! {
        @if group.counts.open + group.counts.unrecoverable + group.counts.ignored > 0 {
            (ask("resolve", "Resolve", "primary", "It is mended. It opens again when it comes again.", &html! {}, "Resolve this code"))
        }
        @if group.unrecoverable_since.is_none() {
            (ask("fail", "Unrecoverable", "danger", "Nobody can mend it, whatever comes, until it is reopened.", &html! {}, "Mark as unrecoverable"))
        }
        @if group.ignored_since.is_none() {
            (ask("ignore", "Ignore", "", "It is left out of what is open.", &for_long, "Ignore this code"))
        }
        @if group.counts.open < group.counts.executions {
            form method="post" action="/errors/mark" class="inline" { (token(&visit.viewer)) (fields) button type="submit" name="deed" value="reopen" { "Reopen" } }
        }
    }
}

fn trend(detail: &ErrorGroupDetailView, now: u64) -> Markup {
    let hours = by_hour(&detail.trend, now);
    let sum: u64 = hours.iter().map(|(_, count)| count).sum();
    let bars: Vec<(Vec<u64>, String)> = hours
        .into_iter()
        .map(|(at, count)| {
            (vec![count], format!("{} UTC: {}", exact(at).get(..16).unwrap_or_default(), number(count)))
        })
        .collect();
    let text = format!("Occurrences per hour in the last {HOURS} hours: {}", number(sum));
    let chart = Bars { about: &text, tones: &["failed"], columns: &bars, ends: ["48 h ago", "now"] };
    card("Occurrences per hour", &html! { (number(sum)) " in 48 hours" }, &chart.render())
}

fn places(places: &[PlaceView]) -> Markup {
    let has_county = places.iter().any(|place| place.named_county().is_some());
    let has_group = places.iter().any(|place| place.data_group_label.is_some());
    let body = html! {
        div class="wrap" {
            table {
                thead { tr { @if has_county { th { "County" } } @if has_group { th class="less" { "Data group" } } th { "Phase" } th { "Step" } th class="num" { "Times" } th class="num less" { "Executions" } th class="num" { "Open" } } }
                tbody {
                    @for place in places {
                        tr {
                            @if has_county { td { (cut(place.named_county().unwrap_or_default(), 60)) } }
                            @if has_group { td class="less" { (cut(place.data_group_label.as_deref().unwrap_or_default(), 60)) } }
                            td { (cut(&place.phase, 60)) }
                            td { (cut(&place.step, 60)) }
                            td class="num" { (number(place.counts.occurrences)) }
                            td class="num less" { (number(place.counts.executions)) }
                            td class="num" { (number(place.counts.open)) }
                        }
                    }
                }
            }
        }
    };
    html! { @if !places.is_empty() { (card("Where", &html! { (places.len()) }, &body)) } }
}

fn samples(samples: &[OccurrenceView], now: u64) -> Markup {
    let body = html! {
        ol class="events" {
            @for sample in samples {
                li {
                    details open {
                        summary {
                            span class="event-entity" { (tail(sample.execution_id.as_str(), 40)) }
                            span class="faint small" { (exact(sample.at.millis())) }
                            (moment(now, sample.at.millis()))
                        }
                        @match &sample.details { Some(details) => (json_block(details)), None => p class="faint none" { "Its event is no longer kept." } }
                    }
                    a class="event-link" href=(super::workflow::address(sample.execution_id.as_str())) aria-label={ "Open execution " (sample.execution_id.as_str()) } { "Open" }
                }
            }
        }
    };
    html! { @if !samples.is_empty() { (card("Newest", &html! { "with their details" }, &body)) } }
}

fn executions(detail: &ErrorGroupDetailView, shown: Option<&str>, cursor: Option<&str>, now: u64) -> Markup {
    let own = address(detail.group.code.as_str());
    let at = |state: Option<&str>, cursor: Option<&str>| {
        format!("{own}{}#executions", query(&[("state", state), ("cursor", cursor)]))
    };
    let chips = html! {
        nav class="chips" aria-label="State" {
            a class="chip" href=(at(None, None)) aria-current=[shown.is_none().then_some("true")] { "all" }
            @for state in STATES { a class="chip" href=(at(Some(state), None)) aria-current=[(shown == Some(state)).then_some("true")] { (state) } }
        }
    };
    let body = html! {
        @if detail.errors.items.is_empty() {
            (empty("No execution has it in this state", &html! { a href=(at(None, None)) { "Show all executions" } }))
        } @else {
            (error_rows(&detail.errors.items, false, now))
        }
        (pager(cursor.map(|_| at(shown, None)), detail.errors.next_cursor.as_deref().map(|next| at(shown, Some(next)))))
    };
    card("Executions", &chips, &body)
}

/// Errors as a table: of one code by execution, or of one execution by code.
pub(super) fn error_rows(errors: &[ErrorView], by_code: bool, now: u64) -> Markup {
    html! {
        div class="wrap" {
            table {
                thead { tr { th { (if by_code { "Code" } else { "Execution" }) } th { "State" } th class="num" { "Times" } th class="less" { "First" } th { "Last" } th class="wide less" { "Why" } } }
                tbody {
                    @for error in errors {
                        tr {
                            td class="name" {
                                @if by_code { a href=(address(error.code.as_str())) { (cut(error.code.as_str(), 60)) } }
                                @else { a href=(super::workflow::address(error.execution_id.as_str())) { (tail(error.execution_id.as_str(), 40)) } }
                            }
                            td { (state(error.state.as_str())) @if error.stale { " " span class="faint" title="Its step has succeeded since" { "stale" } } }
                            td class="num" { (number(error.count)) }
                            td class="less" { (moment(now, error.first_seen.millis())) }
                            td { (moment(now, error.last_seen.millis())) }
                            td class="wide less" {
                                @if let Some(by) = &error.by { span class="faint" { (by) " " } }
                                @if let Some(reason) = &error.reason { (cut(reason, 120)) }
                            }
                        }
                    }
                }
            }
        }
    }
}
