//! Days and months by UTC.

use std::fmt;

use crate::values::time::Timestamp;

const DAY_MILLIS: u64 = 24 * 3_600_000;
/// The days of 400 years.
const ERA_DAYS: u32 = 146_097;
/// The day 0000-03-01 is this many days before 1970-01-01.
const EPOCH_DAYS: u32 = 719_468;
/// 9999-12-31.
const DAYS_MAX: u32 = 2_932_896;
const MONTHS: u32 = 12;

/// A day by UTC, counted from 1970-01-01. It is written as `2026-11-15`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(u32);

/// A month by UTC. It is written as `2026-11`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Month(u32);

impl Day {
    pub fn of(moment: Timestamp) -> Self {
        Self::of_millis(moment.millis())
    }

    /// The day of a moment in epoch milliseconds, held at one that can be written.
    pub fn of_millis(millis: u64) -> Self {
        Self(u32::try_from(millis / DAY_MILLIS).unwrap_or(DAYS_MAX).min(DAYS_MAX))
    }

    /// Days since 1970-01-01.
    pub fn number(self) -> u32 {
        self.0
    }

    pub fn month(self) -> Month {
        let (year, month, _) = self.civil();
        Month(year * MONTHS + month - 1)
    }

    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    #[must_use]
    pub fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// The first moment of the day.
    pub fn start(self) -> Timestamp {
        Timestamp::clamped(u64::from(self.0) * DAY_MILLIS)
    }

    /// Year, month and day. Years begin in March here, so that the odd day comes last.
    fn civil(self) -> (u32, u32, u32) {
        let days = self.0 + EPOCH_DAYS;
        let (era, of_era) = (days / ERA_DAYS, days % ERA_DAYS);
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / (ERA_DAYS - 1)) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        (era * 400 + year_of_era + u32::from(month <= 2), month, day)
    }

    /// Reads `2026-11-15`.
    pub fn parse(text: &str) -> Option<Self> {
        let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        let mut parts = text.split('-');
        let mut part = |length: usize| -> Option<u32> {
            parts.next().filter(|part| part.len() == length && is_digits(part))?.parse().ok()
        };
        let (year, month, day) = (part(4)?, part(2)?, part(2)?);
        if parts.next().is_some() || !(1..=MONTHS).contains(&month) || !(1970..=9_999).contains(&year) {
            return None;
        }
        let year_from_march = year - u32::from(month <= 2);
        let (era, year_of_era) = (year_from_march / 400, year_from_march % 400);
        let from_march = if month > 2 { month - 3 } else { month + 9 };
        let of_year = (153 * from_march + 2) / 5 + day.checked_sub(1)?;
        let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
        let found = Self((era * ERA_DAYS + of_era).checked_sub(EPOCH_DAYS)?);
        // A 31st of April comes out as another day.
        (found.civil() == (year, month, day)).then_some(found)
    }
}

impl Month {
    /// Months since the year 0.
    pub fn number(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = self.civil();
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.0 / MONTHS, self.0 % MONTHS + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (millis, day, month) in [
            (1_000_000_000_000, "2001-09-09", "2001-09"),
            (1_078_012_800_000, "2004-02-29", "2004-02"),
            (1_798_761_599_999, "2026-12-31", "2026-12"),
            (1_798_761_600_000, "2027-01-01", "2027-01"),
            (9_999_999_999_999, "2286-11-20", "2286-11"),
        ] {
            let found = Day::of(Timestamp::clamped(millis));
            assert_eq!((found.to_string().as_str(), found.month().to_string().as_str()), (day, month));
            assert_eq!(Day::parse(day), Some(found));
        }
        let mut last = None;
        for number in 11_000..120_000 {
            let day = Day(number);
            assert_eq!(Day::parse(&day.to_string()), Some(day));
            assert!(last < Some(day.to_string()), "days sort as they are written");
            last = Some(day.to_string());
        }
    }

    #[test]
    fn what_is_no_day_is_told() {
        for text in [
            "",
            "2026",
            "2026-11",
            "2026-11-15-1",
            "2026-13-01",
            "2026-00-01",
            "2026-04-31",
            "2025-02-29",
            "2026-11-00",
            "2026-1-15",
            "26-11-15",
            "1969-12-31",
            "2026-11-15T00:00:00Z",
            "+026-11-15",
            "é026-11-15",
        ] {
            assert_eq!(Day::parse(text), None, "{text}");
        }
    }
}
