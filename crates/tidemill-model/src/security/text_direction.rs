//! Marks that turn the direction of text. In a terminal or a log they could make a line say something else than it holds.

/// Whether a character only says in which direction others are written: U+061C, U+200E, U+200F, U+202A to U+202E and
/// U+2066 to U+2069.
pub const fn turns_text(c: char) -> bool {
    matches!(
        c,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_known_and_letters_are_none() {
        let marks: String = ('\0'..='\u{10ffff}').filter(|c| turns_text(*c)).collect();
        let expected =
            "\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}";
        assert_eq!(marks, expected);
    }
}
