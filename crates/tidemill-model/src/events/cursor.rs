//! Cursors: where a page of a query ended, as a text that clients hand back.
//!
//! A cursor names the query it was made for, so that it cannot continue another one by mistake. It is no secret and
//! proves nothing: what a caller may see is decided by the query's tenant alone.

use std::fmt;

use crate::events::event::Position;
use crate::values::id::EventId;
use crate::values::time::Timestamp;

/// The place after which a query goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cursor {
    /// The last event that was given.
    pub position: Position,
    /// The query it was given by.
    pub fingerprint: Fingerprint,
}

/// A short digest of what makes a query: its tenant, its path and its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub u64);

/// Why a text or a cursor cannot continue a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadCursor {
    #[error("cursor is not one that was given out")]
    Malformed,
    #[error("cursor was given out for another query; tenant, filters and order must stay the same")]
    OtherQuery,
}

/// The first digits of a cursor's text. Another layout gets another one.
const VERSION: &str = "c1";

impl Cursor {
    /// Reads a cursor's text. Whether it fits a query is for the query to say.
    pub fn parse(text: &str) -> Result<Self, BadCursor> {
        read(text).ok_or(BadCursor::Malformed)
    }
}

fn read(text: &str) -> Option<Cursor> {
    let digits = text.strip_prefix(VERSION)?;
    let lower =
        digits.len() == 16 + 12 + 32 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if !lower {
        return None;
    }
    let fingerprint = u64::from_str_radix(&digits[..16], 16).ok()?;
    let millis = u64::from_str_radix(&digits[16..28], 16).ok()?;
    let id = u128::from_str_radix(&digits[28..], 16).ok()?;
    let timestamp = Timestamp::new("cursor", millis).ok()?;
    let position = Position { timestamp, id: EventId::from_u128(id) };
    Some(Cursor { position, fingerprint: Fingerprint(fingerprint) })
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Position { timestamp, id } = self.position;
        write!(f, "{VERSION}{:016x}{:012x}{:032x}", self.fingerprint.0, timestamp.millis(), id.as_u128())
    }
}

impl Fingerprint {
    /// The digest of `parts`.
    ///
    /// Clients keep cursors across restarts and upgrades, so this is a fixed function (FNV-1a) and not the hasher of
    /// the standard library, which may change.
    pub(crate) fn of(parts: &[&str]) -> Self {
        let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
        for part in parts {
            // No part holds `#`, so it marks where one ends.
            for byte in part.bytes().chain([b'#']) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
        Self(hash)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_text_that_was_given_out_is_read() {
        let position = Position { timestamp: Timestamp::MIN, id: EventId::from_u128(255) };
        let cursor = Cursor { position, fingerprint: Fingerprint(0xabc) };
        let text = "c10000000000000abc00e8d4a51000000000000000000000000000000000ff";
        assert_eq!(cursor.to_string(), text);
        assert_eq!(Cursor::parse(text), Ok(cursor));
        for bad in [
            "",
            "c1",
            &text[1..],
            &text[..text.len() - 1],
            &format!("{text}0"),
            &text.replace("abc", "ABC"),
            &text.replace("abc", "äc"),
            &text.replace("c10", "c20"),
            &text.replace("e8d4a51000", "0000000000"),
        ] {
            assert_eq!(Cursor::parse(bad), Err(BadCursor::Malformed), "{bad}");
        }
    }

    #[test]
    fn fingerprints_are_the_same_in_every_release() {
        assert_eq!(Fingerprint::of(&[]), Fingerprint(0xcbf2_9ce4_8422_2325));
        assert_eq!(Fingerprint::of(&["a", "b"]), Fingerprint(0xdb46_4982_b9b1_542a));
        assert_ne!(Fingerprint::of(&["ab", ""]), Fingerprint::of(&["a", "b"]));
    }
}
