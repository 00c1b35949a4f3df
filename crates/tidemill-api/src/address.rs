//! Texts as parts of addresses.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// All that could mean something else.
const CODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A part of a path or query, with everything that could mean something else encoded.
pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, CODED).to_string()
}
