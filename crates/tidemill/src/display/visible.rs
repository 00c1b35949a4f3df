//! A terminal that shows control characters instead of obeying them: what a task printed must not move the cursor, change
//! the title, or hide what stands beside it.

use std::io::{self, Write};

/// Writes `^[` for an escape, as other programs do, and leaves newlines and tabs.
pub(crate) struct Visible<W> {
    out: W,
    /// Whether the first byte of a character is held back that may be a control character of two bytes.
    holds: bool,
}

/// The first byte of U+0080 to U+00BF; the first half of them are control characters.
const LATIN: u8 = 0xc2;

impl<W: Write> Visible<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, holds: false }
    }
}

impl<W: Write> Write for Visible<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut shown = Vec::with_capacity(bytes.len() + 1);
        for byte in bytes {
            match (std::mem::take(&mut self.holds), *byte) {
                (true, 0x80..=0x9f) => shown.extend_from_slice("\u{fffd}".as_bytes()),
                (held, byte) => {
                    if held {
                        shown.push(LATIN);
                    }
                    match byte {
                        LATIN => self.holds = true,
                        b'\n' | b'\t' => shown.push(byte),
                        // It would write over what stands there, and says nothing at the end of a line.
                        b'\r' => {}
                        0x00..0x20 => shown.extend_from_slice(&[b'^', byte + b'@']),
                        0x7f => shown.extend_from_slice(b"^?"),
                        byte => shown.push(byte),
                    }
                }
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
        ] {
            assert_eq!(visible(text), expected);
            // Wherever it is cut.
            let mut cut = Visible::new(Vec::new());
            text.bytes().for_each(|byte| cut.write_all(&[byte]).unwrap());
            assert_eq!(String::from_utf8(cut.out).unwrap(), expected);
        }
    }
}
