//! The last bytes of a stream, and what of them is worth telling.

/// The lines that an error text repeats.
const TOLD_LINES_MAX: usize = 5;
/// The same of a traceback of Python, whose last line says what is wrong.
const TRACEBACK_LINES_MAX: usize = 20;
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
    let lines: Vec<_> = text.lines().map(str::trim_end).filter(is_telling).collect();
    let told = telling(&lines).join("\n");
    let chars = told.chars().count();
    if chars <= TOLD_CHARS_MAX {
        return told;
    }
    let cut: String = told.chars().skip(chars - TOLD_CHARS_MAX).collect();
    format!("…{cut}")
}

/// The lines that tell what is wrong: the last ones, or a trace that began before them.
fn telling<'a>(lines: &'a [&'a str]) -> &'a [&'a str] {
    let from = |first: usize| &lines[first..];
    let last = |count: usize| from(lines.len().saturating_sub(count));
    let is_frame = |line: &str| line.starts_with(char::is_whitespace) && line.trim_start().starts_with("at ");
    if let Some(first) = lines.iter().rposition(|line| line.starts_with("Traceback (most recent call last)"))
    {
        return from(first.max(lines.len().saturating_sub(TRACEBACK_LINES_MAX)));
    }
    // JavaScript and Java say what is wrong above the frames.
    let said = lines.windows(2).rposition(|pair| !is_frame(pair[0]) && is_frame(pair[1]));
    match said.map(from) {
        Some(trace) if trace.len() > TOLD_LINES_MAX => &trace[..TOLD_LINES_MAX],
        _ => last(TOLD_LINES_MAX),
    }
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
    fn a_trace_is_told_with_what_went_wrong() {
        let frames = |count: usize, frame: &str| frame.repeat(count);
        let python = |count| {
            let frames = frames(count, "  File \"x.py\", line 3, in f\n    g()\n    ~^^\n");
            format!("starting\nTraceback (most recent call last):\n{frames}ValueError: bad\n")
        };
        let told = last_lines(&python(4));
        assert!(told.starts_with("Traceback (most recent call last):\n  File"), "{told}");
        assert!(told.ends_with("    g()\nValueError: bad"), "{told}");
        assert_eq!(told.lines().count(), 10);
        let told = last_lines(&python(30));
        assert_eq!((told.lines().count(), told.lines().last()), (20, Some("ValueError: bad")));
        let script =
            format!("x.js:3\nTypeError: no\n{}\nNode.js v22.0\n", frames(9, "    at f (x.js:3:1)\n"));
        let told = last_lines(&script);
        assert_eq!((told.lines().count(), told.lines().next()), (5, Some("TypeError: no")));
        assert_eq!(last_lines("a\nb: x\n    at f\n"), "a\nb: x\n    at f", "what is short is told whole");
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
