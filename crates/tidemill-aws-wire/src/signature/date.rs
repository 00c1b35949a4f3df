//! Moments as signatures write them: `20150830T123600Z`, by UTC, to the second.

use std::fmt;

const DAY_SECS: u64 = 24 * 3_600;
/// The days of 400 years.
const ERA_DAYS: u64 = 146_097;
/// The day 0000-03-01 is this many days before 1970-01-01.
const EPOCH_DAYS: u64 = 719_468;
/// 9999-12-31T23:59:59Z.
const EPOCH_SECS_MAX: u64 = 253_402_300_799;

const MONTHS: [&str; 12] =
    ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// A moment between 1970 and 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AmzDate {
    epoch_secs: u64,
}

impl AmzDate {
    /// The moment, held at the last one that can be written.
    pub fn of_epoch_secs(epoch_secs: u64) -> Self {
        Self { epoch_secs: epoch_secs.min(EPOCH_SECS_MAX) }
    }

    pub fn epoch_secs(self) -> u64 {
        self.epoch_secs
    }

    #[must_use]
    pub fn plus_secs(self, secs: u64) -> Self {
        Self::of_epoch_secs(self.epoch_secs.saturating_add(secs))
    }

    /// Reads `20150830T123600Z`.
    pub fn parse(text: &str) -> Option<Self> {
        let shape = text.len() == 16 && text.is_ascii() && text.as_bytes()[8] == b'T' && text.ends_with('Z');
        if !shape {
            return None;
        }
        let day = days(number(&text[..4])?, number(&text[4..6])?, number(&text[6..8])?)?;
        at(day, &text[9..11], &text[11..13], &text[13..15])
    }

    /// Reads the header `Date`: `Sun, 30 Aug 2015 12:36:00 GMT`, or the short form.
    pub fn parse_date_header(text: &str) -> Option<Self> {
        if let Some(found) = Self::parse(text) {
            return Some(found);
        }
        let bytes = text.as_bytes();
        let shape = bytes.len() == 29
            && text.is_ascii()
            && &text[3..5] == ", "
            && [7, 11, 16, 25].iter().all(|place| bytes[*place] == b' ')
            && [19, 22].iter().all(|place| bytes[*place] == b':')
            && text.ends_with("GMT");
        if !shape {
            return None;
        }
        let month = MONTHS.iter().zip(1..).find(|(name, _)| **name == &text[8..11])?.1;
        let day = days(number(&text[12..16])?, month, number(&text[5..7])?)?;
        at(day, &text[17..19], &text[20..22], &text[23..25])
    }

    /// The day of a credential's scope: `20150830`.
    pub fn day(self) -> String {
        let (year, month, day) = civil(self.epoch_secs / DAY_SECS);
        format!("{year:04}{month:02}{day:02}")
    }
}

impl fmt::Display for AmzDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let secs = self.epoch_secs % DAY_SECS;
        write!(f, "{}T{:02}{:02}{:02}Z", self.day(), secs / 3_600, secs / 60 % 60, secs % 60)
    }
}

fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
}

fn at(days: u64, hour: &str, minute: &str, second: &str) -> Option<AmzDate> {
    let (hour, minute, second) = (number(hour)?, number(minute)?, number(second)?);
    let is_time = hour < 24 && minute < 60 && second < 60;
    is_time.then(|| AmzDate { epoch_secs: days * DAY_SECS + hour * 3_600 + minute * 60 + second })
}

/// Days since 1970-01-01, if there is such a day.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    if !(1970..=9_999).contains(&year) || !(1..=12).contains(&month) {
        return None;
    }
    // Years begin in March here, so that the odd day comes last.
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let year_from_march = year - u64::from(month <= 2);
    let (era, of_era) = (year_from_march / 400, year_from_march % 400);
    let of_year = (153 * from_march + 2) / 5 + day.checked_sub(1)?;
    let found =
        (era * ERA_DAYS + of_era * 365 + of_era / 4 - of_era / 100 + of_year).checked_sub(EPOCH_DAYS)?;
    // A 31st of April comes out as another day.
    (civil(found) == (year, month, day)).then_some(found)
}

/// Year, month and day.
fn civil(days: u64) -> (u64, u64, u64) {
    let days = days + EPOCH_DAYS;
    let (era, of_era) = (days / ERA_DAYS, days % ERA_DAYS);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / (ERA_DAYS - 1)) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn moments_are_read_in_both_forms() {
        for (text, expected) in [
            ("20150830T123600Z", Some(1_440_938_160)),
            ("Sun, 30 Aug 2015 12:36:00 GMT", Some(1_440_938_160)),
            ("19700101T000000Z", Some(0)),
            ("20000229T235959Z", Some(951_868_799)),
            ("99991231T235959Z", Some(EPOCH_SECS_MAX)),
            ("21000229T000000Z", None), // no leap year
            ("20150431T000000Z", None),
            ("20151301T000000Z", None),
            ("20150100T000000Z", None),
            ("20150830T240000Z", None),
            ("20150830T126000Z", None),
            ("20150830T123660Z", None),
            ("19691231T235959Z", None),
            ("20150830T123600", None),
            ("2015-08-30T12:36", None),
            ("+0150830T123600Z", None),
            ("2015083éT12360Z", None),
            ("", None),
            ("Sun, 30 Aug 2015 12:36:00 UTC", None),
            ("Sun, 30 Foo 2015 12:36:00 GMT", None),
            ("Sunday, 30-Aug-15 12:36:00 GMT", None),
        ] {
            assert_eq!(AmzDate::parse_date_header(text).map(AmzDate::epoch_secs), expected, "{text}");
        }
        assert_eq!(AmzDate::parse("Sun, 30 Aug 2015 12:36:00 GMT"), None);
        assert_eq!(AmzDate::of_epoch_secs(u64::MAX).to_string(), "99991231T235959Z");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(epoch_secs in 0..=EPOCH_SECS_MAX) {
            let date = AmzDate::of_epoch_secs(epoch_secs);
            prop_assert_eq!(AmzDate::parse(&date.to_string()), Some(date));
        }

        #[test]
        fn any_text_is_a_moment_or_none(text in "\\PC{0,32}") {
            let _ = AmzDate::parse_date_header(&text);
        }
    }
}
