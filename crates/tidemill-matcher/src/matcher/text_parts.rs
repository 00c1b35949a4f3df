//! All parts of a text, in order.
//!
//! A search through a long text costs what the text is long. Rules that a tenant wrote to do harm can ask for it a
//! million times; with its parts in order each costs a few comparisons.

use crate::filter::TEXT_BYTES_MAX;

pub(super) struct TextParts<'t> {
    text: &'t [u8],
    /// Where the parts begin, in the order of their first bytes.
    starts: Vec<u32>,
}

impl<'t> TextParts<'t> {
    pub(super) fn of(text: &'t str) -> Self {
        let text = text.as_bytes();
        let length = u32::try_from(text.len()).expect("an event is smaller than 4 GiB");
        let mut starts: Vec<u32> = (0..length).collect();
        starts.sort_unstable_by(|left, right| part(text, *left).cmp(part(text, *right)));
        Self { text, starts }
    }

    pub(super) fn contains(&self, wanted: &str) -> bool {
        let wanted = wanted.as_bytes();
        let at = self.starts.partition_point(|start| part(self.text, *start) < wanted);
        wanted.is_empty()
            || self.starts.get(at).is_some_and(|start| part(self.text, *start).starts_with(wanted))
    }
}

/// What begins at `start`, as far as rules can look: no text in them is longer.
fn part(text: &[u8], start: u32) -> &[u8] {
    let rest = &text[start as usize..];
    &rest[..rest.len().min(TEXT_BYTES_MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_contains_its_parts_and_nothing_else() {
        let long = "ab".repeat(3_000) + "é中" + &"ba".repeat(10);
        for text in ["", "a", "abcabd", "aaaa", "grüße", long.as_str()] {
            let parts = TextParts::of(text);
            let longest = ["ab".repeat(512), "ba".repeat(512), "a".repeat(1024), "ab".repeat(511) + "é"];
            for wanted in ["", "a", "b", "ab", "abd", "bd", "abe", "aaaaa", "üß", "é", "中b", "ababababa"]
                .into_iter()
                .chain(longest.iter().map(String::as_str))
            {
                assert_eq!(parts.contains(wanted), text.contains(wanted), "{wanted} in {text}");
            }
        }
    }
}
