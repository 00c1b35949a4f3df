//! Numbers, as people read them.

use std::fmt::Write as _;

use tidemill_model::Day;

/// A moment: `2026-11-15 14:12:07Z`.
pub(crate) fn moment(millis: u64) -> String {
    let seconds = millis / 1_000;
    let (day, clock) = (Day::of_millis(millis), seconds % 86_400);
    format!("{day} {:02}:{:02}:{:02}Z", clock / 3_600, clock / 60 % 60, clock % 60)
}

/// The time of a moment's day: `14:12:07.123`.
pub(crate) fn clock_time(millis: u64) -> String {
    let seconds = millis / 1_000 % 86_400;
    format!("{:02}:{:02}:{:02}.{:03}", seconds / 3_600, seconds / 60 % 60, seconds % 60, millis % 1_000)
}

/// How long ago: `12s ago`.
pub(crate) fn ago(then: u64, now: u64) -> String {
    match now.checked_sub(then) {
        Some(passed) if passed < 1_000 => "now".to_owned(),
        Some(passed) => format!("{} ago", coarse(passed)),
        None => format!("in {}", coarse(then - now)),
    }
}

/// A span by its largest unit: `3m`, `2h`, `5d`.
fn coarse(millis: u64) -> String {
    match millis / 1_000 {
        seconds @ 0..120 => format!("{seconds}s"),
        seconds @ 120..7_200 => format!("{}m", seconds / 60),
        seconds @ 7_200..172_800 => format!("{}h", seconds / 3_600),
        seconds => format!("{}d", seconds / 86_400),
    }
}

/// A span of work: `120ms`, `4.2s`, `3m 05s`, `2h 10m`.
pub(crate) fn span(millis: u64) -> String {
    let seconds = millis / 1_000;
    match millis {
        0..1_000 => format!("{millis}ms"),
        1_000..60_000 => format!("{seconds}.{}s", millis % 1_000 / 100),
        60_000..3_600_000 => format!("{}m {:02}s", seconds / 60, seconds % 60),
        3_600_000..86_400_000 => format!("{}h {:02}m", seconds / 3_600, seconds / 60 % 60),
        _ => format!("{}d {:02}h", seconds / 86_400, seconds / 3_600 % 24),
    }
}

/// Bytes: `512 B`, `4.2 MiB`.
pub(crate) fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if count < 1_024 {
        return format!("{count} B");
    }
    let mut unit = 0;
    let mut scaled = count;
    while scaled >= 1_024 * 1_024 && unit + 1 < UNITS.len() {
        scaled /= 1_024;
        unit += 1;
    }
    format!("{}.{} {}", scaled / 1_024, scaled % 1_024 * 10 / 1_024, UNITS[unit])
}

/// A count with its noun: `1 task`, `1,200 tasks`.
pub(crate) fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", grouped(number))
}

/// Digits in groups of three.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        let _ = write!(text, "{digit}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_well() {
        assert_eq!(moment(0), "1970-01-01 00:00:00Z");
        assert_eq!(moment(951_782_400_000), "2000-02-29 00:00:00Z");
        assert_eq!(moment(1_794_751_927_123), "2026-11-15 14:12:07Z");
        assert_eq!(clock_time(1_794_751_927_123), "14:12:07.123");
        for (millis, expected) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_250, "1.2s"),
            (61_000, "1m 01s"),
            (7_260_000, "2h 01m"),
            (90_000_000, "1d 01h"),
        ] {
            assert_eq!(span(millis), expected);
        }
        assert_eq!(
            (ago(5, 10), ago(0, 30_000), ago(60_000, 0)),
            ("now".into(), "30s ago".into(), "in 60s".into())
        );
        assert_eq!((ago(0, 600_000), ago(0, 90_000_000)), ("10m ago".into(), "25h ago".into()));
    }

    #[test]
    fn sizes_and_counts_read_well() {
        assert_eq!(
            (bytes(5), bytes(1_536), bytes(5 << 30)),
            ("5 B".into(), "1.5 KiB".into(), "5.0 GiB".into())
        );
        assert_eq!((count(1, "task"), count(12_345, "task")), ("1 task".into(), "12,345 tasks".into()));
    }
}
