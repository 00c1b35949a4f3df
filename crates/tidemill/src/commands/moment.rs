//! Moments as people write them on the command line.

use std::fmt;
use std::str::FromStr;

use tidemill_engine::clock::{Clock as _, SystemClock};

/// Epoch milliseconds, from a number or from a span before now such as `90s`, `15m`, `2h`, `7d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment(u64);

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(millis) = text.parse() {
            return Ok(Self(millis));
        }
        let ago = tidemill_model::values::span::parse_text(text)
            .map_err(|_| "give epoch milliseconds, or how long ago as in 90s, 15m, 2h or 7d".to_owned())?;
        Ok(Self(now().saturating_sub(ago)))
    }
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Moment {
    pub(super) fn millis(self) -> u64 {
        self.0
    }
}

/// Now, in epoch milliseconds.
pub(super) fn now() -> u64 {
    SystemClock::start().now().millis()
}
