//! Numbers as DynamoDB has them: decimal, exact, 38 digits.
//!
//! Nothing here passes through a float, so two numbers are equal only if they are the same number.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// How many significant digits a number may have.
pub const NUMBER_DIGITS_MAX: usize = 38;
/// The power of ten of the first digit of the largest number.
pub const NUMBER_MAGNITUDE_MAX: i64 = 125;
/// The power of ten of the first digit of the smallest number above zero.
pub const NUMBER_MAGNITUDE_MIN: i64 = -130;

/// A number: its first digit, a point, its other digits, times ten to the power of its magnitude.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct DecimalNumber {
    is_negative: bool,
    /// From 0 to 9, without zeros at either end. Zero has none.
    digits: Vec<u8>,
    magnitude: i64,
}

/// Why a text is no number. The texts are AWS's own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NumberError {
    #[error("The parameter cannot be converted to a numeric value")]
    Empty,
    #[error("The parameter cannot be converted to a numeric value: {0}")]
    NoNumber(String),
    #[error("Number overflow. Attempting to store a number with magnitude larger than supported range")]
    TooLarge,
    #[error("Number underflow. Attempting to store a number with magnitude smaller than supported range")]
    TooSmall,
    #[error("Attempting to store more than 38 significant digits in a Number")]
    TooManyDigits,
}

impl DecimalNumber {
    /// A count, such as the answer of `size`.
    pub fn from_count(count: usize) -> Self {
        let digits = count.to_string();
        Self::of_parts(false, digits.bytes().map(|digit| digit - b'0').collect(), 0)
    }

    pub fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    /// The bytes that DynamoDB counts for it: two digits to a byte, in pairs from the decimal point on, one byte more for
    /// the power of ten, and one for the sign below zero.
    pub fn bytes(&self) -> usize {
        // A first digit at an even power of ten has its byte to itself.
        let alone = usize::from(self.magnitude.rem_euclid(2) == 0 && !self.is_zero());
        1 + (self.digits.len() + alone).div_ceil(2) + usize::from(self.is_negative)
    }

    /// `fraction` says how many of the digits stand behind the point.
    fn of_parts(is_negative: bool, mut digits: Vec<u8>, fraction: i64) -> Self {
        let leading = digits.iter().take_while(|digit| **digit == 0).count();
        let magnitude = to_i64(digits.len()) - to_i64(leading) - 1 - fraction;
        digits.drain(..leading);
        while digits.last() == Some(&0) {
            digits.pop();
        }
        if digits.is_empty() {
            return Self { is_negative: false, digits, magnitude: 0 };
        }
        Self { is_negative, digits, magnitude }
    }
}

/// Lengths of texts in memory are far below the bound.
fn to_i64(length: usize) -> i64 {
    i64::try_from(length).unwrap_or(i64::MAX)
}

impl FromStr for DecimalNumber {
    type Err = NumberError;

    fn from_str(text: &str) -> Result<Self, NumberError> {
        if text.is_empty() {
            return Err(NumberError::Empty);
        }
        let no_number = || NumberError::NoNumber(text.to_owned());
        let (is_negative, rest) = signed(text);
        let (mantissa, exponent) = match rest.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, Some(exponent)),
            None => (rest, None),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
        if whole.len() + fraction.len() == 0 || !is_digits(whole) || !is_digits(fraction) {
            return Err(no_number());
        }
        let exponent = match exponent.map(signed) {
            None => 0,
            Some((_, digits)) if digits.is_empty() || !is_digits(digits) => return Err(no_number()),
            Some((is_below, digits)) => {
                // Ten million is beyond any magnitude and any length of a text, so a longer one changes nothing.
                let size = digits.parse::<i64>().map_or(10_000_000, |size| size.min(10_000_000));
                if is_below { -size } else { size }
            }
        };
        let digits = whole.bytes().chain(fraction.bytes()).map(|digit| digit - b'0').collect();
        let number = Self::of_parts(is_negative, digits, to_i64(fraction.len()) - exponent);
        if number.magnitude > NUMBER_MAGNITUDE_MAX {
            Err(NumberError::TooLarge)
        } else if number.magnitude < NUMBER_MAGNITUDE_MIN {
            Err(NumberError::TooSmall)
        } else if number.digits.len() > NUMBER_DIGITS_MAX {
            Err(NumberError::TooManyDigits)
        } else {
            Ok(number)
        }
    }
}

fn signed(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

/// As the table gives numbers back: in full, without a power of ten.
impl fmt::Display for DecimalNumber {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digit = |place: i64| {
            let place = usize::try_from(self.magnitude - place).ok();
            char::from(b'0' + place.and_then(|place| self.digits.get(place)).copied().unwrap_or(0))
        };
        let mut text = String::new();
        if self.is_negative {
            text.push('-');
        }
        text.extend((0..=self.magnitude.max(0)).rev().map(digit));
        let last = self.magnitude - to_i64(self.digits.len()) + 1;
        if last < 0 {
            text.push('.');
            text.extend((last..0).rev().map(digit));
        }
        out.write_str(&text)
    }
}

impl Ord for DecimalNumber {
    fn cmp(&self, other: &Self) -> Ordering {
        let sign = |number: &Self| if number.is_zero() { 0 } else { 1 - 2 * i8::from(number.is_negative) };
        let size = || self.magnitude.cmp(&other.magnitude).then_with(|| self.digits.cmp(&other.digits));
        sign(self).cmp(&sign(other)).then_with(|| if self.is_negative { size().reverse() } else { size() })
    }
}

impl PartialOrd for DecimalNumber {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(text: &str) -> DecimalNumber {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn numbers_come_back_in_full() {
        for (text, expected) in [
            ("0", "0"),
            ("-0.00", "0"),
            ("0e999", "0"),
            ("007", "7"),
            ("+7", "7"),
            ("1.50", "1.5"),
            ("1e3", "1000"),
            ("-12.5E-3", "-0.0125"),
            (".5", "0.5"),
            ("5.", "5"),
            ("100", "100"),
            ("1767453739640", "1767453739640"),
            ("12345678901234567890123456789012345678", "12345678901234567890123456789012345678"),
        ] {
            assert_eq!(number(text).to_string(), expected, "{text}");
            assert_eq!(number(expected), number(text), "{text}");
        }
        assert_eq!(number("1e125").to_string().len(), 126);
        assert_eq!(number("1e-130").to_string().len(), 132);
    }

    #[test]
    fn what_is_no_number_or_too_much_of_one_is_refused() {
        let no_number = |text: &str| NumberError::NoNumber(text.to_owned());
        for (text, expected) in [
            ("", NumberError::Empty),
            ("a", no_number("a")),
            ("-", no_number("-")),
            (".", no_number(".")),
            ("1e", no_number("1e")),
            ("1 ", no_number("1 ")),
            ("--1", no_number("--1")),
            ("1.2.3", no_number("1.2.3")),
            ("NaN", no_number("NaN")),
            ("1e126", NumberError::TooLarge),
            ("1e99999999999999999999", NumberError::TooLarge),
            ("1e-131", NumberError::TooSmall),
            ("1e-99999999999999999999", NumberError::TooSmall),
            ("123456789012345678901234567890123456789", NumberError::TooManyDigits),
        ] {
            assert_eq!(text.parse::<DecimalNumber>(), Err(expected), "{text}");
        }
    }

    #[test]
    fn numbers_are_ordered_by_what_they_are_worth() {
        let sorted =
            ["-1e125", "-10", "-9.5", "-9", "-0.1", "0", "1e-130", "0.1", "0.11", "1", "9007199254740992"];
        let sorted = sorted.into_iter().chain(["9007199254740993", "1e125"]).map(number).collect::<Vec<_>>();
        for (at, left) in sorted.iter().enumerate() {
            for (other, right) in sorted.iter().enumerate() {
                assert_eq!(left.cmp(right), at.cmp(&other), "{left} and {right}");
            }
        }
    }

    #[test]
    fn a_byte_holds_two_digits() {
        for (text, expected) in
            [("0", 1), ("1", 2), ("12", 2), ("123", 3), ("-12", 3), ("1000", 2), ("0.12", 2)]
        {
            assert_eq!(number(text).bytes(), expected, "{text}");
        }
    }
}
