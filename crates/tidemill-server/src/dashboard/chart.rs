//! Small charts, drawn here.

use maud::{Markup, html};

/// Stacked bars, the first part of each at the bottom.
pub(super) struct Bars<'a> {
    /// What it shows, for people who cannot see it.
    pub(super) about: &'a str,
    /// One word for each part; its colour.
    pub(super) tones: &'a [&'static str],
    /// For each bar its parts and its tip.
    pub(super) columns: &'a [(Vec<u64>, String)],
    /// What stands below the first and the last bar.
    pub(super) ends: [&'a str; 2],
}

const WIDTH: u64 = 600;
const HEIGHT: u64 = 96;

impl Bars<'_> {
    pub(super) fn render(&self) -> Markup {
        let most = self.columns.iter().map(|(parts, _)| parts.iter().sum::<u64>()).max().unwrap_or(0).max(1);
        let count = (self.columns.len() as u64).max(1);
        let step = WIDTH * 100 / count;
        html! {
            figure class="chart" {
                div class="chart-top" { span class="faint" { (super::widgets::number(most)) } }
                svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label=(self.about) {
                    line class="axis" x1="0" y1=(HEIGHT) x2=(WIDTH) y2=(HEIGHT) {}
                    @for (at, (parts, tip)) in self.columns.iter().enumerate() {
                        g {
                            title { (tip) }
                            rect class="hit" x=(hundredths(at as u64 * step)) y="0" width=(hundredths(step)) height=(HEIGHT) {}
                            @for (part, (below, value)) in stacked(parts).enumerate() {
                                @if value > 0 {
                                    rect data-tone=(self.tones.get(part).copied().unwrap_or("plain"))
                                        x=(hundredths(at as u64 * step + step / 10))
                                        width=(hundredths(step * 8 / 10))
                                        y=(hundredths((most - below - value) * HEIGHT * 100 / most))
                                        height=(hundredths((value * HEIGHT * 100 / most).max(100))) {}
                                }
                            }
                        }
                    }
                }
                figcaption { span { (self.ends[0]) } span { (self.ends[1]) } }
            }
        }
    }
}

/// The height of a line of bars that stands in a table.
const SPARK_HEIGHT: u64 = 20;

/// Bars without anything around them.
pub(super) fn spark(values: &[u64], about: &str) -> Markup {
    let most = values.iter().copied().max().unwrap_or(0).max(1);
    html! {
        svg class="spark" viewBox={ "0 0 " (values.len() * 2) " " (SPARK_HEIGHT) } preserveAspectRatio="none" role="img" aria-label=(about) {
            title { (about) }
            line class="axis" x1="0" y1=(SPARK_HEIGHT) x2=(values.len() * 2) y2=(SPARK_HEIGHT) {}
            @for (at, value) in values.iter().enumerate() {
                @if *value > 0 {
                    @let height = (value * SPARK_HEIGHT * 100 / most).max(150);
                    rect x=(hundredths(at as u64 * 200 + 20)) width="1.6" y=(hundredths(SPARK_HEIGHT * 100 - height)) height=(hundredths(height)) {}
                }
            }
        }
    }
}

/// Each part with what is below it.
fn stacked(parts: &[u64]) -> impl Iterator<Item = (u64, u64)> {
    parts.iter().scan(0, |below, value| {
        let own = (*below, *value);
        *below += value;
        Some(own)
    })
}

/// A share of a whole, as a bar of parts.
pub(super) fn share(parts: &[(&'static str, u64)], about: &str) -> Markup {
    let total: u64 = parts.iter().map(|(_, count)| count).sum();
    let mut left = 0;
    html! {
        svg class="share" viewBox="0 0 1000 8" preserveAspectRatio="none" role="img" aria-label=(about) {
            title { (about) }
            rect class="hollow" x="0" y="0" width="1000" height="8" {}
            @if total > 0 {
                @for (state, count) in parts {
                    @if *count > 0 {
                        @let width = (count * 1_000 / total).max(6);
                        rect data-state=(state) x=(left) y="0" width=(width) height="8" {}
                        ({ left += width; "" })
                    }
                }
            }
        }
    }
}

fn hundredths(value: u64) -> String {
    if value.is_multiple_of(100) {
        (value / 100).to_string()
    } else {
        format!("{}.{:02}", value / 100, value % 100)
    }
}
