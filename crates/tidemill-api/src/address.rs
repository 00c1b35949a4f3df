//! Texts as parts of addresses.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// All that could mean something else.
const CODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A part of a path or query, with everything that could mean something else encoded.
pub fn encode(text: &str) -> String {
    utf8_percent_encode(text, CODED).to_string()
}

/// The text behind percent signs. A percent sign without two digits behind it is refused.
pub fn decode(text: &str) -> Option<String> {
    let is_coded = |rest: &str| rest.bytes().take(2).filter(u8::is_ascii_hexdigit).count() == 2;
    if !text.split('%').skip(1).all(is_coded) {
        return None;
    }
    percent_decode_str(text).decode_utf8().ok().map(Cow::into_owned)
}
