//! Errors by cause: what goes wrong most, since when, and what was decided about it.

use std::fmt::Write;

use maud::{Markup, html};
use serde_json::{Value, json};

use super::super::chart::spark;
use super::super::form::{Pairs, encode, query};
use super::super::screen::{Screen, Watch};
use super::super::visit::{Outcome, Sight, Visit};
use super::super::widgets::{
    card, counted_do, cut, empty, figure, moment, noun, number, pager, state, token,
};
use super::Page;
use crate::api::{self, ErrorCountsView, ErrorGroupView, HourView, MarkedView};
use crate::problem::Problem;

const STATES: [&str; 4] = ["open", "resolved", "unrecoverable", "ignored"];
const SORTS: [(&str, &str); 3] =
    [("count", "most occurrences"), ("executions", "most executions"), ("recent", "newest")];
const KINDS: [(&str, &str); 2] = [("workflow", "of workflows"), ("task", "of tasks")];
/// The hours that a code's trend has.
pub(super) const HOURS: u64 = 48;
const HOUR_MILLIS: u64 = 3_600_000;
/// Codes that one form may name.
const MANY_MAX: usize = 100;

pub(super) fn pages() -> Vec<Page> {
    vec![
        Page::new("/errors", show)
            .filters(&[
                ("state", &["open", "resolved", "unrecoverable", "ignored", "all"]),
                ("kind", &["workflow", "task"]),
                ("sort", &["count", "executions", "recent"]),
                ("q", &[]),
                ("cursor", &[]),
            ])
            .live()
            .act("/errors/mark", mark),
    ]
}

/// Which codes are listed.
struct Filter<'a> {
    state: Option<&'a str>,
    kind: Option<&'a str>,
    sort: &'a str,
    search: Option<&'a str>,
}

impl<'a> Filter<'a> {
    fn read(given: &'a Pairs) -> Self {
        Self {
            // Visitors of this page want to know what is to be done; `all` asks for the rest.
            state: match given.text("state") {
                Some("all") => None,
                other => Some(other.filter(|state| STATES.contains(state)).unwrap_or("open")),
            },
            kind: given.text("kind").filter(|kind| KINDS.iter().any(|(own, _)| own == kind)),
            sort: given
                .text("sort")
                .filter(|sort| SORTS.iter().any(|(own, _)| own == sort))
                .unwrap_or("count"),
            search: given.text("q").map(str::trim),
        }
    }

    fn address(&self, cursor: Option<&str>) -> String {
        let asked = query(&[
            ("state", Some(self.state.unwrap_or("all")).filter(|state| *state != "open")),
            ("kind", self.kind),
            ("sort", Some(self.sort).filter(|sort| *sort != "count")),
            ("q", self.search),
            ("cursor", cursor),
        ]);
        format!("/errors{asked}")
    }
}

async fn show(visit: Visit) -> Result<Sight, Problem> {
    let filter = Filter::read(&visit.query);
    let cursor = visit.query.text("cursor");
    let asked = query(&[
        ("state", filter.state),
        ("kind", filter.kind),
        ("sort", Some(filter.sort)),
        ("q", filter.search),
        ("cursor", cursor),
        ("limit", Some("50")),
    ]);
    let groups: api::Page<ErrorGroupView> = visit.api.get(&format!("/v1/workflow/errors{asked}")).await?;
    let tenant = visit.tenant()?;
    let mut rows = Vec::with_capacity(groups.items.len());
    for group in &groups.items {
        // The trend of a code stands in its detail, which would read samples as well.
        let found = visit.engine().error_group(&tenant, &group.code).await?;
        let trend = found.map(|found| crate::views::hours(&found.group)).unwrap_or_default();
        rows.push((group, trend));
    }
    let may = visit.may_submit();
    let list = html! {
        @if rows.is_empty() {
            @if filter.state == Some("open") && filter.search.is_none() && filter.kind.is_none() {
                (empty("No open errors", &html! { "Failures of tasks and of workflows show up here by their cause. " a href="/errors?state=all" { "Show those of all states" } }))
            } @else {
                (empty("No error is like that", &html! { a href="/errors?state=all" { "Show all errors" } }))
            }
        } @else {
            (table(&rows, may, visit.now))
        }
        (pager(cursor.map(|_| filter.address(None)), groups.next_cursor.as_deref().map(|next| filter.address(Some(next)))))
    };
    let body = if may && !rows.is_empty() {
        html! {
            form method="post" action="/errors/mark" {
                (token(&visit.viewer))
                input type="hidden" name="back" value=(filter.address(cursor));
                (list)
                div class="bulk" {
                    span class="faint" { "With selected:" }
                    input name="reason" maxlength="1000" placeholder="why, optional" aria-label="Why";
                    button type="submit" name="deed" value="resolve" class="primary" { "Resolve" }
                    button type="submit" name="deed" value="fail" class="danger" { "Unrecoverable" }
                    button type="submit" name="deed" value="ignore" { "Ignore" }
                    button type="submit" name="deed" value="reopen" { "Reopen" }
                }
            }
        }
    } else {
        list
    };
    let sort = SORTS.iter().find(|(own, _)| *own == filter.sort).map_or("", |(_, label)| label);
    let screen = Screen::new("errors", "Errors")
        .watching(Watch::Tenant)
        .still("head", html! { h1 { "Errors" } (controls(&filter)) })
        .live("list", card("Causes", &html! { (sort) " first" }, &body));
    Ok(screen.into())
}

fn controls(filter: &Filter<'_>) -> Markup {
    let current = |is: bool| is.then_some("true");
    let chip = |address: String, label: &str, is: bool| html! { a class="chip" href=(address) aria-current=[current(is)] { (label) } };
    html! {
        form class="filter" method="get" action="/errors" role="search" {
            input type="search" name="q" value=[filter.search] placeholder="Code or text" aria-label="Code or text";
            @if filter.state != Some("open") { input type="hidden" name="state" value=(filter.state.unwrap_or("all")); }
            @if let Some(kind) = filter.kind { input type="hidden" name="kind" value=(kind); }
            @if filter.sort != "count" { input type="hidden" name="sort" value=(filter.sort); }
            button type="submit" { "Search" }
            nav class="chips" aria-label="State" {
                @for own in STATES { (chip(Filter { state: Some(own), ..*filter }.address(None), own, filter.state == Some(own))) }
                (chip(Filter { state: None, ..*filter }.address(None), "all", filter.state.is_none()))
            }
            nav class="chips" aria-label="Kind" {
                (chip(Filter { kind: None, ..*filter }.address(None), "of all", filter.kind.is_none()))
                @for (own, label) in KINDS { (chip(Filter { kind: Some(own), ..*filter }.address(None), label, filter.kind == Some(own))) }
            }
            nav class="chips" aria-label="Order" {
                @for (own, label) in SORTS { (chip(Filter { sort: own, ..*filter }.address(None), label, filter.sort == own)) }
            }
        }
    }
}

/// What a code is about, in a few words.
pub(super) fn about(group: &ErrorGroupView) -> String {
    let known = group.title.as_deref().or(group.description.as_deref()).or(group.category.as_deref());
    known.or(group.phase.as_deref()).unwrap_or_default().to_owned()
}

/// The address of a code.
pub(super) fn address(code: &str) -> String {
    format!("/errors/{}", encode(code))
}

fn table(rows: &[(&ErrorGroupView, Vec<HourView>)], may: bool, now: u64) -> Markup {
    html! {
        div class="wrap" {
            table {
                thead {
                    tr {
                        @if may { th class="check" { input type="checkbox" data-check-all aria-label="Check all" hidden; } }
                        th { "Code" } th class="less" { "Last 48 h" } th class="num" { "Times" } th class="num" { "Open" } th class="num less" { "Executions" } th class="less" { "Decided" } th { "Last" }
                    }
                }
                tbody {
                    @for (group, trend) in rows {
                        tr {
                            @if may { td class="check" { input type="checkbox" name="code" value=(group.code) aria-label={ "Check " (group.code) }; } }
                            td class="name" {
                                a href=(address(group.code.as_str())) { (cut(group.code.as_str(), 60)) }
                                span class="faint" { (cut(&about(group), 110)) }
                            }
                            td class="less" { (trend_line(trend, now)) }
                            td class="num" { (number(group.counts.occurrences)) }
                            td class="num" { (number(group.counts.open)) }
                            td class="num less" { (number(group.counts.executions)) }
                            td class="less" { (decided(group)) }
                            td { (moment(now, group.last_seen.millis())) }
                        }
                    }
                }
            }
        }
    }
}

/// What stands of a code as a whole.
pub(super) fn decided(group: &ErrorGroupView) -> Markup {
    let word = match () {
        () if group.unrecoverable_since.is_some() => "unrecoverable",
        () if group.ignored_since.is_some() => "ignored",
        () if group.counts.open == 0 && group.counts.resolved > 0 => "resolved",
        () => "open",
    };
    state(word)
}

/// Occurrences of each of the last hours, oldest first, with when each hour began.
pub(super) fn by_hour(trend: &[HourView], now: u64) -> Vec<(u64, u64)> {
    let last = now / HOUR_MILLIS;
    let count = |hour: u64| {
        let own = trend.iter().find(|own| own.at.millis() / HOUR_MILLIS == hour);
        own.map_or(0, |own| own.occurrences)
    };
    (last + 1 - HOURS..=last).map(|hour| (hour * HOUR_MILLIS, count(hour))).collect()
}

fn trend_line(trend: &[HourView], now: u64) -> Markup {
    let values: Vec<u64> = by_hour(trend, now).into_iter().map(|(_, count)| count).collect();
    spark(&values, &format!("{} in the last 48 hours", number(values.iter().sum())))
}

/// Counts of errors by state, as figures.
pub(super) fn count_figures(counts: &ErrorCountsView) -> Markup {
    let tone = |count: u64, tone: &'static str| if count > 0 { tone } else { "calm" };
    html! {
        (figure(&noun(counts.occurrences, "time"), &number(counts.occurrences), "calm", None))
        (figure(&noun(counts.executions, "execution"), &number(counts.executions), "calm", None))
        (figure("open", &number(counts.open), tone(counts.open, "failed"), None))
        (figure("resolved", &number(counts.resolved), tone(counts.resolved, "completed"), None))
        (figure("unrecoverable", &number(counts.unrecoverable), "calm", None))
        (figure("ignored", &number(counts.ignored), "calm", None))
    }
}

/// Tells the API what was decided about errors.
pub(super) async fn decide(
    visit: &Visit,
    deed: &str,
    mut scope: Value,
    form: &Pairs,
) -> Result<u64, Problem> {
    if !matches!(deed, "resolve" | "fail" | "ignore" | "reopen") {
        return Err(Problem::field("INVALID_FIELD", "deed", "must be resolve, fail, ignore or reopen"));
    }
    scope["reason"] = json!(form.text("reason"));
    if deed == "ignore" {
        if let Some(hours) = form.text("hours") {
            let hours: u64 = hours
                .trim()
                .parse()
                .map_err(|_| Problem::invalid_field("hours", "must be a whole number"))?;
            scope["until"] = json!(visit.now.saturating_add(hours.saturating_mul(HOUR_MILLIS)));
        }
        if let Some(times) = form.text("occurrences") {
            let times: u64 = times
                .trim()
                .parse()
                .map_err(|_| Problem::invalid_field("occurrences", "must be a whole number"))?;
            scope["occurrences"] = json!(times);
        }
    }
    let done: MarkedView = visit.api.post(&format!("/v1/workflow/errors/{deed}"), &scope).await?;
    Ok(done.changed)
}

pub(super) fn past(deed: &str) -> &'static str {
    match deed {
        "resolve" => "resolved",
        "fail" => "unrecoverable",
        "ignore" => "ignored",
        _ => "open again",
    }
}

async fn mark(visit: Visit, form: Pairs) -> Result<Outcome, Problem> {
    let back = form.text("back").filter(|back| back.starts_with("/errors")).unwrap_or("/errors").to_owned();
    let deed = form.text("deed").unwrap_or_default();
    let codes: Vec<&str> = form.all("code").take(MANY_MAX).collect();
    if codes.is_empty() {
        return Ok(Outcome::go(back, "No code was checked."));
    }
    let mut changed = 0;
    for code in &codes {
        changed += decide(&visit, deed, json!({"errorCode": code}), &form).await?;
    }
    let mut note = String::new();
    match codes[..] {
        [code] => note.push_str(code),
        _ => drop(write!(note, "{} codes", codes.len())),
    }
    let _ = write!(note, ": {} {}.", counted_do(changed, "error", "is", "are"), past(deed));
    Ok(Outcome::go(back, note))
}
