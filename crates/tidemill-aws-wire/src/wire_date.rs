//! Dates as services write and read them, from and to milliseconds since 1970, without a clock or a calendar of others.

const DAY_MILLIS: i64 = 86_400_000;
/// The first millisecond of the year 10,000: a year of five digits has no form on the wire.
const MILLIS_END: i64 = 253_402_300_800_000;

/// Year, month, day and milliseconds of the day.
struct Civil {
    year: i64,
    month: i64,
    day: i64,
    millis: i64,
}

impl Civil {
    /// Howard Hinnant's `civil_from_days`: years begin in March, so that the leap day is the last one.
    fn of(epoch_millis: i64) -> Self {
        let shifted = epoch_millis.div_euclid(DAY_MILLIS) + 719_468;
        let era = shifted.div_euclid(146_097);
        let day_of_era = shifted.rem_euclid(146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        Self {
            year: year_of_era + era * 400 + i64::from(month <= 2),
            month,
            day: day_of_year - (153 * month_from_march + 2) / 5 + 1,
            millis: epoch_millis.rem_euclid(DAY_MILLIS),
        }
    }

    fn clock(&self) -> (i64, i64, i64, i64) {
        let seconds = self.millis / 1_000;
        (seconds / 3_600, seconds / 60 % 60, seconds % 60, self.millis % 1_000)
    }
}

fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let month_from_march = if month > 2 { month - 3 } else { month + 9 };
    let day_of_year = (153 * month_from_march + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// `Wed, 18 Nov 2026 06:12:43 GMT`: the dates of headers. Times outside the years 1970 to 9999 are held at their ends.
pub fn http_date(epoch_millis: i64) -> String {
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let epoch_millis = epoch_millis.clamp(0, MILLIS_END - 1);
    let civil = Civil::of(epoch_millis);
    let (hour, minute, second, _) = civil.clock();
    let named =
        |names: &[&'static str], at: i64| usize::try_from(at).ok().and_then(|at| names.get(at).copied());
    let weekday = named(&WEEKDAYS, epoch_millis / DAY_MILLIS % 7).unwrap_or_default();
    let month = named(&MONTHS, civil.month - 1).unwrap_or_default();
    let Civil { year, day, .. } = civil;
    format!("{weekday}, {day:02} {month} {year:04} {hour:02}:{minute:02}:{second:02} GMT")
}

/// `2026-11-18T06:12:43.000Z`: the dates of bodies in XML. Times outside the years 1970 to 9999 are held at their ends.
pub fn iso_date(epoch_millis: i64) -> String {
    let civil = Civil::of(epoch_millis.clamp(0, MILLIS_END - 1));
    let (hour, minute, second, milli) = civil.clock();
    let Civil { year, month, day, .. } = civil;
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milli:03}Z")
}

/// Reads `2026-11-18T06:12:43[.123…](Z|+01:00)` into milliseconds; none if it is anything else.
pub fn read_iso_date(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = bytes.get(from..to)?;
        digits
            .iter()
            .try_fold(0, |sum, digit| digit.is_ascii_digit().then(|| sum * 10 + i64::from(digit - b'0')))
    };
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if marks.iter().any(|(at, mark)| bytes.get(*at) != Some(mark)) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    if hour > 23 || minute > 59 || second > 59 || !(1..=12).contains(&month) {
        return None;
    }
    let days = days_from_civil(year, month, day);
    let civil = Civil::of(days * DAY_MILLIS);
    if (civil.month, civil.day) != (month, day) {
        return None; // the 30th of February
    }
    let mut zone_at = 19;
    let mut millis = 0;
    if bytes.get(19) == Some(&b'.') {
        let digits = bytes[20..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        zone_at = 20 + digits;
        let kept = digits.min(3);
        millis = number(20, 20 + kept)? * [0, 100, 10, 1][kept];
    }
    let offset_minutes = match (bytes.get(zone_at)?, bytes.len() - zone_at) {
        (b'Z', 1) => 0,
        (sign @ (b'+' | b'-'), 6) if bytes[zone_at + 3] == b':' => {
            let minutes = number(zone_at + 1, zone_at + 3)? * 60 + number(zone_at + 4, zone_at + 6)?;
            if *sign == b'+' { minutes } else { -minutes }
        }
        _ => return None,
    };
    Some(days * DAY_MILLIS + (hour * 3_600 + (minute - offset_minutes) * 60 + second) * 1_000 + millis)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn dates_have_one_form_each() {
        for (millis, http, iso) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT", "1970-01-01T00:00:00.000Z"),
            (951_782_400_123, "Tue, 29 Feb 2000 00:00:00 GMT", "2000-02-29T00:00:00.123Z"),
            (1_794_982_363_000, "Wed, 18 Nov 2026 06:12:43 GMT", "2026-11-18T06:12:43.000Z"),
            (i64::MIN, "Thu, 01 Jan 1970 00:00:00 GMT", "1970-01-01T00:00:00.000Z"),
            (i64::MAX, "Fri, 31 Dec 9999 23:59:59 GMT", "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!((http_date(millis).as_str(), iso_date(millis).as_str()), (http, iso), "{millis}");
        }
    }

    #[test]
    fn iso_dates_are_read_with_fractions_and_zones() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("1970-01-01T01:00:00.5+01:00", Some(500)),
            ("1970-01-01T00:00:00.123456789Z", Some(123)),
            ("1970-01-01T00:00:00-00:30", Some(1_800_000)),
            ("2026-02-30T00:00:00Z", None),
            ("2026-13-01T00:00:00Z", None),
            ("2026-11-18T24:00:00Z", None),
            ("2026-11-18T06:12:43", None),
            ("2026-11-18T06:12:43.", None),
            ("2026-11-18T06:12:43.Z", Some(1_794_982_363_000)),
            ("2026-11-18T06:12:43+0100", None),
            ("2026-11-18", None),
            ("", None),
        ] {
            assert_eq!(read_iso_date(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(millis in 0..MILLIS_END) {
            prop_assert_eq!(read_iso_date(&iso_date(millis)), Some(millis));
        }

        #[test]
        fn any_text_is_a_date_or_none(text in "[0-9T:.Z+-]{0,32}") {
            let _ = read_iso_date(&text);
        }
    }
}
