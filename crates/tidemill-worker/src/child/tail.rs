//! The last bytes of a stream, and what of them is worth telling.

/// The lines that an error text repeats.
const TOLD_LINES_MAX: usize = 5;
/// The characters of them.
const TOLD_CHARS_MAX: usize = 1_000;

/// The end of a stream. It keeps at least the last `limit` bytes of what it was given, and never twice as many.
#[derive(Debug)]
pub(crate) struct Tail {
    limit: usize,
    bytes: Vec<u8>,
}

impl Tail {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, bytes: Vec::new() }
    }

    pub(crate) fn push_line(&mut self, line: &[u8]) {
        let line = &line[line.len().saturating_sub(self.limit)..];
        self.bytes.extend_from_slice(line);
        self.bytes.push(b'\n');
        if self.bytes.len() > 2 * self.limit {
            self.bytes.drain(..self.bytes.len() - self.limit);
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// The last lines of a text that say something.
pub(crate) fn last_lines(text: &str) -> String {
    let is_telling = |line: &&str| line.chars().any(char::is_alphanumeric);
    let mut lines: Vec<_> =
        text.lines().map(str::trim_end).filter(is_telling).rev().take(TOLD_LINES_MAX).collect();
    lines.reverse();
    let told = lines.join("\n");
    let chars = told.chars().count();
    if chars <= TOLD_CHARS_MAX {
        return told;
    }
    let cut: String = told.chars().skip(chars - TOLD_CHARS_MAX).collect();
    format!("…{cut}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_kept_and_the_rest_is_not() {
        let mut tail = Tail::new(10);
        for line in ["first", "second", "third", "4"] {
            tail.push_line(line.as_bytes());
        }
        assert!(tail.text().ends_with("third\n4\n"), "{}", tail.text());
        assert!(tail.bytes.len() <= 20);
        tail.push_line(&[b'x'; 1000]);
        assert!(tail.bytes.len() <= 20, "{}", tail.bytes.len());
        assert!(tail.text().ends_with("xxxx\n"));
    }

    #[test]
    fn only_telling_lines_are_told() {
        for (text, expected) in
            [("", ""), ("one\n\n  \n---\n", "one"), ("1\n2\n3\n4\n5\n6\n7  \n", "3\n4\n5\n6\n7")]
        {
            assert_eq!(last_lines(text), expected);
        }
        assert_eq!(last_lines(&"é".repeat(5_000)).chars().count(), TOLD_CHARS_MAX + 1);
    }
}
