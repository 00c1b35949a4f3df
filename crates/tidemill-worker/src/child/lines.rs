//! Lines out of a stream of bytes, without ever keeping a whole line that is too long.

/// The bytes of a line that are kept. What follows is dropped up to the end of the line.
pub(crate) const LINE_BYTES_MAX: usize = 1024 * 1024;

/// One line without its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    pub(crate) bytes: &'a [u8],
    /// The rest of it was dropped.
    pub(crate) is_cut: bool,
}

#[derive(Debug)]
pub(crate) struct LineSplitter {
    limit: usize,
    /// The beginning of a line whose end did not come yet.
    begun: Vec<u8>,
    /// The line was handed out already; what follows up to its end is dropped.
    skipping: bool,
}

impl Default for LineSplitter {
    fn default() -> Self {
        Self::with_limit(LINE_BYTES_MAX)
    }
}

impl LineSplitter {
    pub(crate) fn with_limit(limit: usize) -> Self {
        Self { limit, begun: Vec::new(), skipping: false }
    }

    /// Takes bytes and hands out every line that is complete, or too long.
    pub(crate) fn feed(&mut self, mut bytes: &[u8], mut each: impl FnMut(Line<'_>)) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.take(&bytes[..end], &mut each);
            if !std::mem::take(&mut self.skipping) {
                each(Line { bytes: without_return(&self.begun), is_cut: false });
            }
            self.begun.clear();
            bytes = &bytes[end + 1..];
        }
        self.take(bytes, &mut each);
    }

    /// Adds to the line that was begun, and hands it out as soon as it is too long.
    fn take(&mut self, bytes: &[u8], each: &mut impl FnMut(Line<'_>)) {
        if self.skipping {
            return;
        }
        let room = self.limit - self.begun.len();
        if bytes.len() <= room {
            self.begun.extend_from_slice(bytes);
            return;
        }
        self.begun.extend_from_slice(&bytes[..room]);
        each(Line { bytes: &self.begun, is_cut: true });
        self.begun = Vec::new();
        self.skipping = true;
    }

    /// Hands out what came after the last line end.
    pub(crate) fn finish(&mut self, mut each: impl FnMut(Line<'_>)) {
        if !self.skipping && !self.begun.is_empty() {
            each(Line { bytes: without_return(&self.begun), is_cut: false });
        }
        self.begun = Vec::new();
        self.skipping = false;
    }
}

fn without_return(line: &[u8]) -> &[u8] {
    line.strip_suffix(b"\r").unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn split(limit: usize, chunks: &[&[u8]]) -> Vec<(Vec<u8>, bool)> {
        let mut splitter = LineSplitter::with_limit(limit);
        let mut lines = Vec::new();
        let mut each = |line: Line<'_>| lines.push((line.bytes.to_vec(), line.is_cut));
        for chunk in chunks {
            splitter.feed(chunk, &mut each);
        }
        splitter.finish(each);
        lines
    }

    #[test]
    fn lines_are_split_and_long_ones_cut() {
        for (text, expected) in [
            ("", &[][..]),
            ("\n", &[("", false)]),
            ("ab\r\ncd", &[("ab", false), ("cd", false)]),
            ("a\n\nb\n", &[("a", false), ("", false), ("b", false)]),
            ("1234567\nx\n", &[("1234567", false), ("x", false)]),
            ("12345678\nx\n", &[("12345678", false), ("x", false)]),
            ("123456789abc\nx\n", &[("12345678", true), ("x", false)]),
            ("123456789abc", &[("12345678", true)]),
        ] {
            let expected: Vec<_> =
                expected.iter().map(|(line, is_cut)| (line.as_bytes().to_vec(), *is_cut)).collect();
            assert_eq!(split(8, &[text.as_bytes()]), expected, "{text:?}");
            let bytes: Vec<_> = text.as_bytes().chunks(1).collect();
            assert_eq!(split(8, &bytes), expected, "{text:?} byte by byte");
        }
    }

    proptest! {
        #[test]
        fn chunks_do_not_matter(bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), any::<u8>()], 0..200), at in 0_usize..200) {
            let at = at.min(bytes.len());
            prop_assert_eq!(split(16, &[&bytes]), split(16, &[&bytes[..at], &bytes[at..]]));
        }
    }
}
