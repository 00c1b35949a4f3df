//! Figures, the goals they are held against, and the table.

use serde::Serialize;

use crate::machine::Machine;

/// What a figure, or its ratio to the control, must be.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Goal {
    AtLeast(f64),
    AtMost(f64),
}

impl Goal {
    fn is_met_by(self, value: f64) -> bool {
        match self {
            Self::AtLeast(least) => value >= least,
            Self::AtMost(most) => value <= most,
        }
    }

    fn text(self) -> String {
        match self {
            Self::AtLeast(least) => format!("≥ {}", short(least)),
            Self::AtMost(most) => format!("≤ {}", short(most)),
        }
    }
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Figure {
    pub row: &'static str,
    pub what: String,
    pub value: f64,
    pub unit: &'static str,
    /// What it is compared with: its name and value, in the same unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub control: Option<(String, f64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// Judges the ratio if there is one, otherwise the value.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub met: Option<bool>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub note: String,
}

impl Figure {
    pub fn new(row: &'static str, what: impl Into<String>, value: f64, unit: &'static str) -> Self {
        let what = what.into();
        Self {
            row,
            what,
            value,
            unit,
            control: None,
            ratio: None,
            goal: None,
            met: None,
            note: String::new(),
        }
    }

    #[must_use]
    pub fn beside(self, name: impl Into<String>, control: f64) -> Self {
        let ratio = self.value / control;
        self.with_ratio(name, control, ratio)
    }

    /// Like `beside`, with a ratio that was taken pair by pair.
    #[must_use]
    pub fn with_ratio(mut self, name: impl Into<String>, control: f64, ratio: f64) -> Self {
        self.control = Some((name.into(), control));
        self.ratio = Some(ratio);
        self
    }

    #[must_use]
    pub fn goal(mut self, goal: Goal) -> Self {
        self.met = Some(goal.is_met_by(self.ratio.unwrap_or(self.value)));
        self.goal = Some(goal);
        self
    }

    /// Judges only where the control can be trusted.
    #[must_use]
    pub fn goal_if(self, trusted: bool, goal: Goal) -> Self {
        if trusted { self.goal(goal) } else { self }
    }

    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

/// Everything one run found out.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    pub machine: Machine,
    pub settings: Vec<(String, String)>,
    pub figures: Vec<Figure>,
}

impl Report {
    pub fn push(&mut self, figure: Figure) {
        eprintln!("  {}", line(&figure));
        self.figures.push(figure);
    }

    pub fn setting(&mut self, name: &str, value: impl ToString) {
        self.settings.push((name.to_owned(), value.to_string()));
    }

    /// The table as Markdown.
    pub fn table(&self) -> String {
        let machine = &self.machine;
        let mut out = format!(
            "Machine: {} × {}, {:.0} GiB, Linux {}, {}; load at start {}.\n",
            machine.cores,
            machine.cpu,
            machine.memory_gib,
            machine.kernel,
            machine.file_system,
            machine.load_at_start
        );
        for (name, value) in &self.settings {
            out.push_str(&format!("{name}: {value}.\n"));
        }
        out.push_str("\n| row | figure | value | control | ratio | goal | met | note |\n");
        out.push_str("| --- | --- | ---: | --- | ---: | --- | --- | --- |\n");
        for figure in &self.figures {
            let control = figure.control.as_ref();
            out.push_str(&format!(
                "| {} | {} | {} {} | {} | {} | {} | {} | {} |\n",
                figure.row,
                figure.what,
                short(figure.value),
                figure.unit,
                control.map_or_else(String::new, |(name, value)| format!("{name}: {}", short(*value))),
                figure.ratio.map_or_else(String::new, |ratio| format!("{ratio:.2}")),
                figure.goal.map_or_else(String::new, Goal::text),
                figure.met.map_or("", |met| if met { "yes" } else { "**no**" }),
                figure.note,
            ));
        }
        out
    }
}

fn line(figure: &Figure) -> String {
    let mut out = format!("{}: {} = {} {}", figure.row, figure.what, short(figure.value), figure.unit);
    if let Some((name, value)) = &figure.control {
        out.push_str(&format!(" ({name} {}, ratio {:.2})", short(*value), figure.ratio.unwrap_or(f64::NAN)));
    }
    if let (Some(goal), Some(met)) = (figure.goal, figure.met) {
        out.push_str(&format!(" [{} {}]", goal.text(), if met { "met" } else { "NOT MET" }));
    }
    if !figure.note.is_empty() {
        out.push_str(&format!(" ({})", figure.note));
    }
    out
}

fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 100_000.0 => format!("{:.0} k", value / 1e3),
        v if v >= 10_000.0 => format!("{:.1} k", value / 1e3),
        v if v >= 100.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => {
            let text = format!("{value:.2}");
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
    }
}
