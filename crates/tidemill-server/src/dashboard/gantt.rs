//! When attempts ran: one row per task, one bar per attempt.

use maud::{Markup, html};

use super::widgets::{exact, span};

/// One attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bar {
    pub(super) from: u64,
    /// `None` while it runs.
    pub(super) to: Option<u64>,
    pub(super) state: &'static str,
    pub(super) about: String,
}

pub(super) struct Row {
    pub(super) label: String,
    pub(super) link: String,
    pub(super) bars: Vec<Bar>,
}

const WIDTH: u64 = 1_000;
/// Lines that mark the time.
const TICKS: u64 = 4;

pub(super) fn render(rows: &[Row], now: u64) -> Markup {
    let bars = || rows.iter().flat_map(|row| &row.bars);
    let Some(from) = bars().map(|bar| bar.from).min() else { return super::widgets::nothing() };
    let to = bars().map(|bar| bar.to.unwrap_or(now)).max().unwrap_or(now).max(from + TICKS);
    let place = |moment: u64| (moment.clamp(from, to) - from) * WIDTH / (to - from);
    let about = |row: &Row| {
        let told: Vec<&str> = row.bars.iter().map(|bar| bar.about.as_str()).collect();
        format!("{}: {}", row.label, told.join("; "))
    };
    html! {
        div class="gantt" {
            div class="gantt-row gantt-scale" {
                span class="faint" { "from " (exact(from)) }
                div class="gantt-ticks" aria-hidden="true" {
                    @for tick in 0..=TICKS { span { (span((to - from) * tick / TICKS)) } }
                }
            }
            ol aria-label="When attempts ran" {
                @for row in rows {
                    li class="gantt-row" {
                        a href=(row.link) title=(row.label) { (row.label) }
                        svg role="img" aria-label=(about(row)) viewBox={ "0 0 " (WIDTH) " 14" } preserveAspectRatio="none" {
                            @for tick in 1..TICKS { line class="axis" x1=(WIDTH * tick / TICKS) x2=(WIDTH * tick / TICKS) y1="0" y2="14" {} }
                            @for bar in &row.bars {
                                @let (left, right) = (place(bar.from), place(bar.to.unwrap_or(now)));
                                rect data-state=(bar.state) x=(left.min(WIDTH - 3)) y="2" width=((right - left).max(3)) height="10" rx="2" {
                                    title { (bar.about) }
                                }
                            }
                        }
                    }
                }
            }
        }
    }
}
