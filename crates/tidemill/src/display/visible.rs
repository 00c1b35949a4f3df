//! A terminal that shows control characters instead of obeying them: what a task printed must not move the cursor, change
//! the title, or hide what stands beside it.

use std::io::{self, Write};

use tidemill_model::security::text_direction::turns_text;

/// Writes `^[` for an escape, as other programs do, and leaves newlines and tabs. Marks that turn the direction of text
/// are shown as what cannot be shown.
pub(crate) struct Visible<W> {
    out: W,
    /// The first bytes of a character that may be one of those.
    held: Vec<u8>,
}

/// What stands for a character that is not obeyed.
const SHOWN: &str = "\u{fffd}";

/// What a character is whose first bytes are these.
enum Seen {
    /// It may become one that is not obeyed.
    Begun,
    NotObeyed,
    Harmless,
}

fn seen(bytes: &[u8]) -> Seen {
    match bytes {
        // The beginnings of U+0080 to U+00BF, U+0600 to U+063F, U+2000 to U+203F and U+2040 to U+207F.
        [0xc2 | 0xd8 | 0xe2] | [0xe2, 0x80 | 0x81] => Seen::Begun,
        [0xc2, 0x80..=0x9f] => Seen::NotObeyed,
        _ => match std::str::from_utf8(bytes).ok().and_then(|text| text.chars().next()) {
            Some(c) if turns_text(c) => Seen::NotObeyed,
            _ => Seen::Harmless,
        },
    }
}

impl<W: Write> Visible<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, held: Vec::new() }
    }

    /// Takes a byte that begins nothing.
    fn show(byte: u8, shown: &mut Vec<u8>) {
        match byte {
            b'\n' | b'\t' => shown.push(byte),
            // It would write over what stands there, and says nothing at the end of a line.
            b'\r' => {}
            0x00..0x20 => shown.extend_from_slice(&[b'^', byte + b'@']),
            0x7f => shown.extend_from_slice(b"^?"),
            byte => shown.push(byte),
        }
    }
}

impl<W: Write> Write for Visible<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut shown = Vec::with_capacity(bytes.len() + 2);
        for byte in bytes {
            // Only a continuation belongs to what was begun.
            if !self.held.is_empty() && !(0x80..=0xbf).contains(byte) {
                shown.append(&mut self.held);
            }
            self.held.push(*byte);
            match seen(&self.held) {
                Seen::Begun => {}
                Seen::NotObeyed => {
                    shown.extend_from_slice(SHOWN.as_bytes());
                    self.held.clear();
                }
                Seen::Harmless if self.held.len() == 1 => {
                    self.held.clear();
                    Self::show(*byte, &mut shown);
                }
                Seen::Harmless => shown.append(&mut self.held),
            }
        }
        self.out.write_all(&shown)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// The same for one text.
pub(crate) fn visible(text: &str) -> String {
    let mut shown = Visible::new(Vec::new());
    // A vector takes everything.
    let _ = shown.write_all(text.as_bytes());
    String::from_utf8_lossy(&shown.out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_seen_and_not_obeyed() {
        for (text, expected) in [
            ("plain\ttext\n", "plain\ttext\n"),
            ("\u{1b}]0;title\u{7}\u{1b}[2Jx", "^[]0;title^G^[[2Jx"),
            ("over\rwritten\r\n", "overwritten\n"),
            ("\u{9b}31m\u{85}é \u{a0}ä\u{7f}\0", "\u{fffd}31m\u{fffd}é \u{a0}ä^?^@"),
            ("日本 🙂", "日本 🙂"),
            (
                "a\u{202e}b\u{2066}c\u{2069}\u{200e}\u{200f}\u{61c}d",
                "a\u{fffd}b\u{fffd}c\u{fffd}\u{fffd}\u{fffd}\u{fffd}d",
            ),
            ("\u{2029}…\u{2070}ض\u{61b}\u{2060}\u{1b}", "\u{2029}…\u{2070}ض\u{61b}\u{2060}^["),
        ] {
            assert_eq!(visible(text), expected);
            // Wherever it is cut.
            let mut cut = Visible::new(Vec::new());
            text.bytes().for_each(|byte| cut.write_all(&[byte]).unwrap());
            assert_eq!(String::from_utf8(cut.out).unwrap(), expected);
        }
        let mut broken = Visible::new(Vec::new());
        broken.write_all(b"\xe2\x80x\xe2\xe2\x80\xae\xc2\n\x80\xd8\x1b").unwrap();
        assert_eq!(broken.out, b"\xe2\x80x\xe2\xef\xbf\xbd\xc2\n\x80\xd8^[", "bytes that are no text");
    }
}
