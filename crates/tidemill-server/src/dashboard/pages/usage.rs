//! What agents used, and what they may use.

use maud::{Markup, html};
use serde_json::json;
use tidemill_model::{Day, UsageSum};

use super::super::chart::Bars;
use super::super::form::{Pairs, query};
use super::super::screen::{Screen, Watch};
use super::super::visit::{Outcome, Sight, Visit};
use super::super::widgets::{
    card, confirm, counted, dollars, empty, figure, noun, number, pager, shortened, span, token,
};
use super::Page;
use super::job::budget_figure;
use crate::api::{self, BudgetView, UsageRowView};
use crate::problem::Problem;

/// The days of the chart.
const DAYS: u32 = 30;
const WAYS: [(&str, &str); 3] = [("day", "by day"), ("definition", "by definition"), ("job", "by job")];

pub(super) fn pages() -> Vec<Page> {
    vec![
        Page::new("/usage", show)
            .filters(&[("by", &["day", "definition", "job"]), ("cursor", &[])])
            .live()
            .act("/usage/budget", set_budget)
            .act("/usage/budget/remove", remove_budget),
    ]
}

async fn show(visit: Visit) -> Result<Sight, Problem> {
    let given = |name: &str| visit.query.text(name);
    let by = given("by").filter(|by| WAYS.iter().any(|(own, _)| own == by)).unwrap_or("day");
    let today = Day::of_millis(visit.now);
    let first = (1..DAYS).fold(today, |day, _| day.previous());
    let days: api::Page<UsageRowView> =
        visit.api.get(&format!("/v1/usage?by=day&from={first}&limit=60")).await?;
    let asked = query(&[("by", Some(by)), ("cursor", given("cursor")), ("limit", Some("50"))]);
    let rows: api::Page<UsageRowView> = visit.api.get(&format!("/v1/usage{asked}")).await?;
    let budget: Option<BudgetView> = visit.api.find("/v1/budget").await?;
    let sum = days.items.iter().fold(UsageSum::default(), |sum, row| sum.and(&row.sum));
    let of_today = days.items.iter().find(|row| row.key == today.to_string());
    let address =
        |by: &str, cursor: Option<&str>| format!("/usage{}", query(&[("by", Some(by)), ("cursor", cursor)]));
    let figures = html! {
        div class="figures" {
            (figure("today", &dollars(of_today.map_or(0, |row| row.sum.cost_micros)), "calm", None))
            (figure("in 30 days", &dollars(sum.cost_micros), "calm", None))
            (figure(&format!("{} in 30 days", noun(tokens(&sum), "token")), &number(tokens(&sum)), "calm", None))
            (figure(&format!("{} in 30 days", noun(sum.attempts, "attempt")), &number(sum.attempts), "calm", None))
            @if let Some(budget) = &budget {
                (budget_figure(budget))
            }
        }
    };
    let chips = html! {
        nav class="chips" aria-label="Sums" {
            @for (own, label) in WAYS { a class="chip" href=(address(own, None)) aria-current=[(own == by).then_some("true")] { (label) } }
        }
    };
    let table = html! {
        (table(by, &rows.items))
        (pager(given("cursor").map(|_| address(by, None)), rows.next_cursor.as_deref().map(|next| address(by, Some(next)))))
    };
    let screen = Screen::new("usage", "Usage")
        .watching(Watch::Tenant)
        .still("head", html! { h1 { "Usage" } })
        .live("figures", figures)
        .live("chart", card("Dollars per day", &html! { "days of UTC" }, &chart(first, &days.items)))
        .live("sums", card("Sums", &chips, &table))
        .still("budget", budget_card(&visit, budget.as_ref()));
    Ok(screen.into())
}

fn tokens(sum: &UsageSum) -> u64 {
    sum.input_tokens + sum.output_tokens + sum.cache_read_tokens + sum.cache_write_tokens
}

fn chart(first: Day, days: &[UsageRowView]) -> Markup {
    let mut bars = Vec::new();
    let mut day = first;
    for _ in 0..DAYS {
        let key = day.to_string();
        let sum = days.iter().find(|row| row.key == key).map(|row| row.sum).unwrap_or_default();
        // Cents, so that the number above the chart can be read.
        let tip = format!("{key}: {}, {}", dollars(sum.cost_micros), counted(tokens(&sum), "token"));
        bars.push((vec![sum.cost_micros / 10_000], tip));
        day = day.next();
    }
    let about = "Dollars that agents used per day in the last 30 days";
    let from = first.to_string();
    html! {
        p class="faint small" { "in cents" }
        (Bars { about, tones: &["plain"], columns: &bars, ends: [&from, "today"] }.render())
    }
}

fn table(by: &str, rows: &[UsageRowView]) -> Markup {
    if rows.is_empty() {
        let hint = html! { "Agents report tokens and dollars when an attempt ends: see " a href="/docs" { "the docs" } "." };
        return empty("No agent used anything yet", &hint);
    }
    html! {
        div class="wrap" {
            table {
                thead { tr { th { (match by { "job" => "Job", "definition" => "Definition", _ => "Day" }) } th class="num" { "Cost" } th class="num" { "Input" } th class="num" { "Output" } th class="num less" { "From cache" } th class="num less" { "To cache" } th class="num less" { "Turns" } th class="num less" { "Attempts" } th class="num less" { "Time" } } }
                tbody {
                    @for row in rows {
                        tr {
                            td { @if by == "job" { a href={ "/jobs/" (row.key) } { (shortened(&row.key)) } } @else { (row.key) } }
                            td class="num" { strong { (dollars(row.sum.cost_micros)) } }
                            td class="num" { (number(row.sum.input_tokens)) }
                            td class="num" { (number(row.sum.output_tokens)) }
                            td class="num less" { (number(row.sum.cache_read_tokens)) }
                            td class="num less" { (number(row.sum.cache_write_tokens)) }
                            td class="num less" { (number(row.sum.turns)) }
                            td class="num less" { (number(row.sum.attempts)) }
                            td class="num less" { (span(row.sum.duration_ms)) }
                        }
                    }
                }
            }
        }
    }
}

fn budget_card(visit: &Visit, budget: Option<&BudgetView>) -> Markup {
    let body = html! {
        @match budget {
            Some(budget) => {
                p {
                    "Spent " strong { (dollars(budget.spent.cost_micros)) } @if let Some(usd) = budget.usd { " of " (dollars(usd.0)) }
                    " and " strong { (number(budget.spent.tokens)) } @if let Some(tokens) = budget.tokens { " of " (number(tokens)) } " " (noun(budget.tokens.unwrap_or(budget.spent.tokens), "token"))
                    @if budget.used_up { ". No further agent task starts." } @else { "." }
                }
            }
            None => p class="faint" { "There is no budget: agents may use as much as their tasks and jobs allow." },
        }
        @if visit.is_admin() {
            form method="post" action="/usage/budget" class="filter" {
                (token(&visit.viewer))
                label { "Dollars " input name="usd" type="number" min="0" step="0.01" value=[budget.and_then(|budget| budget.usd).map(|usd| plain_dollars(usd.0))]; }
                label { "Tokens " input name="tokens" type="number" min="0" step="1" value=[budget.and_then(|budget| budget.tokens)]; }
                label { "per " select name="period" {
                    @for period in ["day", "month", "total"] { option value=(period) selected[period == period_of(budget)] { (period) } }
                } }
                button type="submit" class="primary" { "Set budget" }
            }
            @if budget.is_some() {
                p { (confirm(&visit.viewer, "/usage/budget/remove", "Remove budget", "danger", &html! { button type="submit" class="danger" { "Remove it" } })) }
            }
            p {}
        }
    };
    card("Budget of the tenant", &html! {}, &body)
}

fn period_of(budget: Option<&BudgetView>) -> String {
    let period = budget.and_then(|budget| budget.period);
    let name = serde_json::to_value(period).ok().and_then(|value| value.as_str().map(ToOwned::to_owned));
    name.unwrap_or_else(|| "total".to_owned())
}

fn plain_dollars(micros: u64) -> String {
    format!("{}.{:02}", micros / 1_000_000, micros % 1_000_000 / 10_000)
}

async fn set_budget(visit: Visit, form: Pairs) -> Result<Outcome, Problem> {
    let mut body = json!({"period": form.text("period")});
    for field in ["usd", "tokens"] {
        if let Some(text) = form.text(field) {
            body[field] = serde_json::from_str(text.trim())
                .map_err(|_| Problem::invalid_field(field, "is no number"))?;
        }
    }
    let _: BudgetView = visit.api.change(axum::http::Method::PUT, "/v1/budget", None, &body).await?;
    Ok(Outcome::go("/usage", "The budget is set."))
}

async fn remove_budget(visit: Visit, _: Pairs) -> Result<Outcome, Problem> {
    visit.api.remove("/v1/budget").await?;
    Ok(Outcome::go("/usage", "There is no budget any more."))
}
