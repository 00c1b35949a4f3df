//! Writing the text format: one family after the other, each with its head once.

use std::fmt::{Display, Write as _};

use tidemill_engine::metrics::{Bounds, HistogramMetrics};

/// What the values of a family are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// The text so far. Samples belong to the family that was begun last.
#[derive(Debug, Default)]
pub(super) struct Text {
    text: String,
    family: &'static str,
}

impl Text {
    /// Begins a family. It has a head even when it has no sample yet.
    pub(super) fn family(&mut self, name: &'static str, kind: Kind, about: &str) {
        self.family = name;
        let _ = writeln!(self.text, "# HELP {name} {about}\n# TYPE {name} {}", kind.as_str());
    }

    pub(super) fn counter(&mut self, name: &'static str, about: &str, value: impl Display) {
        self.family(name, Kind::Counter, about);
        self.sample(&[], value);
    }

    pub(super) fn gauge(&mut self, name: &'static str, about: &str, value: impl Display) {
        self.family(name, Kind::Gauge, about);
        self.sample(&[], value);
    }

    pub(super) fn sample(&mut self, labels: &[(&str, &str)], value: impl Display) {
        self.line("", labels, value);
    }

    pub(super) fn histogram(&mut self, name: &'static str, about: &str, read: &HistogramMetrics) {
        let shown = |value: u64| match read.bounds {
            Bounds::Micros(_) => scaled(value, 6),
            Bounds::Count(_) => value.to_string(),
        };
        self.family(name, Kind::Histogram, about);
        for (bound, count) in read.buckets() {
            self.bucket(&shown(bound), count);
        }
        self.bucket("+Inf", read.count);
        self.line("_sum", &[], shown(read.sum));
        self.line("_count", &[], read.count);
    }

    pub(super) fn bucket(&mut self, bound: &str, count: u64) {
        self.line("_bucket", &[("le", bound)], count);
    }

    /// A line of the family whose name goes on with `ending`.
    pub(super) fn line(&mut self, ending: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.text, "{}{ending}", self.family);
        for (place, (name, value)) in labels.iter().enumerate() {
            let before = if place == 0 { '{' } else { ',' };
            let _ = write!(self.text, "{before}{name}=\"{}\"", escaped(value));
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.text, "{after} {value}");
    }

    pub(super) fn end(self) -> String {
        self.text
    }
}

/// A value in millionths, thousandths and so on, as a decimal number.
pub(super) fn scaled(value: u64, digits: usize) -> String {
    let unit = 10_u64.pow(u32::try_from(digits).unwrap_or(0));
    let text = format!("{}.{:0digits$}", value / unit, value % unit);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_numbers_are_plain() {
        let mut text = Text::default();
        text.family("a", Kind::Gauge, "About.");
        text.sample(&[("one", "x\\y\"z\nw"), ("two", "")], 3);
        let expected = "# HELP a About.\n# TYPE a gauge\na{one=\"x\\\\y\\\"z\\nw\",two=\"\"} 3\n";
        assert_eq!(text.end(), expected);
        for (value, digits, expected) in
            [(0, 6, "0"), (100, 6, "0.0001"), (2_500_000, 6, "2.5"), (60_000, 3, "60"), (5, 3, "0.005")]
        {
            assert_eq!(scaled(value, digits), expected);
        }
    }
}
