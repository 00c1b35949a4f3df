//! Forms and queries: pairs of names and texts.

use std::fmt::Write;

use crate::problem::Problem;
pub(super) use tidemill_api::encode;

pub(super) use crate::request::param::decode;

/// How much of a name that nobody knows is shown.
const NAME_CHARS_SHOWN: usize = 40;

/// Pairs as they were given, in their order.
#[derive(Debug, Clone, Default)]
pub(super) struct Pairs(Vec<(String, String)>);

/// The name of a filter, and the words that it takes; without any, all texts.
pub(super) type Filter = (&'static str, &'static [&'static str]);

impl Pairs {
    /// Reads `application/x-www-form-urlencoded`. What is no UTF-8 is left out.
    pub(super) fn read(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty());
        let decoded = pairs.filter_map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            Some((decode(name)?, decode(value)?))
        });
        Self(decoded.collect())
    }

    /// The text of a field that is there and not blank.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        let mut found = self.0.iter().filter(|(own, _)| own == name).map(|(_, text)| text.as_str());
        found.next().filter(|text| !text.trim().is_empty())
    }

    /// What is wrong with a query if these are its filters.
    pub(super) fn unknown(&self, known: &[Filter]) -> Option<Problem> {
        self.0.iter().find_map(|(name, text)| {
            // How far the page was seen, which its own script tells.
            if name == "seq" {
                return None;
            }
            let Some((field, words)) = known.iter().find(|(own, _)| own == name) else {
                let shown: String = name.chars().take(NAME_CHARS_SHOWN).collect();
                return Some(Problem::field("UNKNOWN_PARAMETER", shown, "is not a filter of this page"));
            };
            let text = text.trim();
            let fits = words.is_empty() || text.is_empty() || words.contains(&text);
            (!fits)
                .then(|| Problem::invalid_parameter(*field, format!("must be one of {}", words.join(", "))))
        })
    }

    pub(super) fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(own, _)| own == name).map(|(_, text)| text.as_str())
    }
}

/// A query of those pairs that have a value, with its question mark; nothing when none has.
pub(super) fn query(pairs: &[(&str, Option<&str>)]) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        let Some(value) = value.filter(|value| !value.is_empty()) else { continue };
        let mark = if text.is_empty() { '?' } else { '&' };
        let _ = write!(text, "{mark}{name}={}", encode(value));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_read_again() {
        let text = "a b&c=<d>/ü%#";
        let query = query(&[("x", Some(text)), ("y", None), ("z", Some("1"))]);
        let pairs = Pairs::read(query.trim_start_matches('?'));
        assert_eq!((pairs.text("x"), pairs.text("y"), pairs.text("z")), (Some(text), None, Some("1")));
        assert_eq!(Pairs::read("a=+&b=%zz&c=%ff&d=1&d=2").all("d").collect::<Vec<_>>(), ["1", "2"]);
        assert_eq!(Pairs::read("a=+").text("a"), None);
    }
}
