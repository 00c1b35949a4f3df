//! One line of text from a source that may hold anything.

use tidemill_model::security::text_direction::turns_text;

/// The text without control characters, escape sequences and marks that turn its direction, on one line.
pub(crate) fn clean(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        match character {
            // A sequence of the terminal: up to its final letter, or to the end of a title.
            '\u{1b}' => match characters.next() {
                Some('[') => while characters.next().is_some_and(|c| !('@'..='~').contains(&c)) {},
                Some(']') => while characters.next().is_some_and(|c| c != '\u{7}' && c != '\u{1b}') {},
                _ => {}
            },
            // Words on two lines are two words.
            '\t' | '\n' => cleaned.push(' '),
            character if character.is_control() || turns_text(character) => {}
            character => cleaned.push(character),
        }
    }
    cleaned
}

/// The lines of a text, each as `clean` has it; those after the first one are indented by this many columns.
pub(crate) fn indented(text: &str, columns: usize) -> String {
    let lines: Vec<String> = text.lines().map(|line| clean(line).trim_end().to_owned()).collect();
    lines.join(&format!("\n{:columns$}", ""))
}

/// How many columns a character takes on a terminal: the wide ones of East Asia and most pictures take two.
pub(crate) fn columns_of(character: char) -> usize {
    match u32::from(character) {
        0x0300..=0x036f | 0x200b..=0x200d | 0xfe00..=0xfe0f => 0,
        0x1100..=0x115f
        | 0x2e80..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1faff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

pub(crate) fn columns(text: &str) -> usize {
    text.chars().map(columns_of).sum()
}

/// The text within this many columns; a cut is marked.
pub(crate) fn cut(text: &str, width: usize) -> String {
    if columns(text) <= width {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut used = 0;
    for character in text.chars() {
        let columns = columns_of(character);
        if used + columns + 1 > width {
            break;
        }
        kept.push(character);
        used += columns;
    }
    if width > 0 {
        kept.push('…');
    }
    kept
}

/// The text, filled with blanks to a width.
pub(crate) fn pad(text: &str, width: usize) -> String {
    let missing = width.saturating_sub(columns(text));
    format!("{text}{:missing$}", "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceback_keeps_its_lines() {
        let said = "exit code 1: Traceback:\r\n  File \"x.py\", line 3\u{1b}[2J\n\u{202e}ValueError: bad\n";
        assert_eq!(
            indented(said, 4),
            "exit code 1: Traceback:\n      File \"x.py\", line 3\n    ValueError: bad"
        );
        assert_eq!(clean("one\ntwo"), "one two");
    }

    #[test]
    fn lines_are_tamed_and_fit() {
        assert_eq!(clean("a\u{1b}[31mred\u{1b}[0m\tb\r\u{7}\u{1b}]0;title\u{7}c\u{202e}"), "ared bc");
        assert_eq!(clean("a\u{61c}\u{200e}\u{200f}\u{202a}\u{2066}\u{2069}b"), "ab");
        assert_eq!((columns("aé漢"), pad("漢", 4)), (4, "漢  ".to_owned()));
        assert_eq!(
            (cut("hello", 5), cut("hello", 4), cut("漢字", 3), cut("x", 0)),
            ("hello".into(), "hel…".into(), "漢…".into(), String::new())
        );
    }
}
