//! Placeholders: the names and values that stand beside the expressions of a request.
//!
//! They belong to all expressions of the request together, so it is known only after the last of them which were used.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::dynamodb::value::AttributeValue;

/// How long a name may be.
pub const NAME_BYTES_MAX: usize = 65_535;
/// How long all names and values of a request may be together.
pub const PLACEHOLDER_BYTES_MAX: usize = 2 * 1_024 * 1_024;

/// The placeholders of a request, and which of them its expressions have used so far.
#[derive(Debug, Clone, Default)]
pub struct Placeholders {
    /// Names and values are shared with the expressions: a large one may be used in many places.
    names: BTreeMap<String, Arc<str>>,
    values: BTreeMap<String, Arc<AttributeValue>>,
    used_names: BTreeSet<String>,
    used_values: BTreeSet<String>,
}

/// What is wrong with the placeholders themselves. The texts are AWS's own, where they are known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlaceholderError {
    #[error("ExpressionAttributeNames must not be empty")]
    NoNames,
    #[error("ExpressionAttributeValues must not be empty")]
    NoValues,
    #[error("ExpressionAttributeNames contains invalid key: Syntax error; key: \"{0}\"")]
    BadName(String),
    #[error("ExpressionAttributeValues contains invalid key: Syntax error; key: \"{0}\"")]
    BadValue(String),
    // The words of the next two limits are not documented; the limits are.
    #[error(
        "ExpressionAttributeNames contains invalid value: Attribute name is too large, must be at most {NAME_BYTES_MAX} bytes; key: \"{0}\""
    )]
    NameTooLong(String),
    #[error(
        "ExpressionAttributeNames and ExpressionAttributeValues are too large; size: {0}, maximum: {PLACEHOLDER_BYTES_MAX} bytes"
    )]
    TooLarge(usize),
    #[error("Value provided in ExpressionAttributeNames unused in expressions: keys: {{{0}}}")]
    UnusedNames(String),
    #[error("Value provided in ExpressionAttributeValues unused in expressions: keys: {{{0}}}")]
    UnusedValues(String),
}

impl Placeholders {
    /// Takes the two parameters; one that is given must not be empty.
    pub fn new(
        names: Option<BTreeMap<String, String>>,
        values: Option<BTreeMap<String, AttributeValue>>,
    ) -> Result<Self, PlaceholderError> {
        if names.as_ref().is_some_and(BTreeMap::is_empty) {
            return Err(PlaceholderError::NoNames);
        }
        let (names, has_values) = (names.unwrap_or_default(), values.is_some());
        if let Some(key) = names.keys().find(|key| !is_key(key, '#')) {
            return Err(PlaceholderError::BadName(key.clone()));
        }
        if let Some((key, _)) = names.iter().find(|(_, name)| name.len() > NAME_BYTES_MAX) {
            return Err(PlaceholderError::NameTooLong(key.clone()));
        }
        let values = values.unwrap_or_default();
        if has_values && values.is_empty() {
            return Err(PlaceholderError::NoValues);
        }
        if let Some(key) = values.keys().find(|key| !is_key(key, ':')) {
            return Err(PlaceholderError::BadValue(key.clone()));
        }
        let bytes = names.values().map(String::len).sum::<usize>()
            + values.values().map(AttributeValue::bytes).sum::<usize>();
        if bytes > PLACEHOLDER_BYTES_MAX {
            return Err(PlaceholderError::TooLarge(bytes));
        }
        let names = names.into_iter().map(|(key, name)| (key, name.into())).collect();
        let values = values.into_iter().map(|(key, value)| (key, Arc::new(value))).collect();
        Ok(Self { names, values, ..Self::default() })
    }

    /// Fails if there is a placeholder that no expression used.
    pub fn all_used(&self) -> Result<(), PlaceholderError> {
        let unused = |keys: Vec<&String>| keys.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let names: Vec<_> = self.names.keys().filter(|key| !self.used_names.contains(*key)).collect();
        if !names.is_empty() {
            return Err(PlaceholderError::UnusedNames(unused(names)));
        }
        let values: Vec<_> = self.values.keys().filter(|key| !self.used_values.contains(*key)).collect();
        if !values.is_empty() {
            return Err(PlaceholderError::UnusedValues(unused(values)));
        }
        Ok(())
    }

    pub(super) fn name(&mut self, key: &str) -> Option<Arc<str>> {
        let name = self.names.get(key)?;
        self.used_names.insert(key.to_owned());
        Some(Arc::clone(name))
    }

    pub(super) fn value(&mut self, key: &str) -> Option<Arc<AttributeValue>> {
        let value = self.values.get(key)?;
        self.used_values.insert(key.to_owned());
        Some(Arc::clone(value))
    }
}

fn is_key(key: &str, mark: char) -> bool {
    key.strip_prefix(mark).is_some_and(|rest| {
        !rest.is_empty() && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_have_a_mark_and_a_name() {
        let names = |key: &str| Some(BTreeMap::from([(key.to_owned(), "a".to_owned())]));
        let values = |key: &str| Some(BTreeMap::from([(key.to_owned(), AttributeValue::Null)]));
        for (names, values, expected) in [
            (None, None, None),
            (names("#a_1"), values(":1"), None),
            (Some(BTreeMap::new()), None, Some(PlaceholderError::NoNames)),
            (None, Some(BTreeMap::new()), Some(PlaceholderError::NoValues)),
            (names("a"), None, Some(PlaceholderError::BadName("a".into()))),
            (names("#"), None, Some(PlaceholderError::BadName("#".into()))),
            (names("#a-b"), None, Some(PlaceholderError::BadName("#a-b".into()))),
            (None, values("#a"), Some(PlaceholderError::BadValue("#a".into()))),
        ] {
            assert_eq!(Placeholders::new(names, values).err(), expected);
        }
    }

    #[test]
    fn names_have_a_bound_and_all_placeholders_together_have_one() {
        let names = |count: usize, bytes: usize| {
            (count > 0).then(|| (0..count).map(|at| (format!("#{at:02}"), "x".repeat(bytes))).collect())
        };
        let value = |bytes: usize| {
            (bytes > 0).then(|| BTreeMap::from([(":v".to_owned(), AttributeValue::B(vec![0; bytes]))]))
        };
        let most = PLACEHOLDER_BYTES_MAX;
        for (names, values, expected) in [
            (names(1, NAME_BYTES_MAX), None, None),
            (names(1, NAME_BYTES_MAX + 1), None, Some(PlaceholderError::NameTooLong("#00".into()))),
            (names(32, NAME_BYTES_MAX), None, None),
            (names(33, NAME_BYTES_MAX), None, Some(PlaceholderError::TooLarge(33 * NAME_BYTES_MAX))),
            (None, value(most), None),
            (None, value(most + 1), Some(PlaceholderError::TooLarge(most + 1))),
            (names(1, 1), value(most), Some(PlaceholderError::TooLarge(most + 1))),
        ] {
            assert_eq!(Placeholders::new(names, values).err(), expected);
        }
    }

    #[test]
    fn every_placeholder_must_be_used() {
        let names = BTreeMap::from([("#a".to_owned(), "a".to_owned()), ("#b".to_owned(), "b".to_owned())]);
        let values = BTreeMap::from([(":v".to_owned(), AttributeValue::Null)]);
        let mut placeholders = Placeholders::new(Some(names), Some(values)).unwrap();
        assert_eq!(placeholders.all_used(), Err(PlaceholderError::UnusedNames("#a, #b".into())));
        assert_eq!(placeholders.name("#a"), Some("a".into()));
        assert_eq!(placeholders.all_used(), Err(PlaceholderError::UnusedNames("#b".into())));
        placeholders.name("#b");
        assert_eq!(placeholders.all_used(), Err(PlaceholderError::UnusedValues(":v".into())));
        assert_eq!(placeholders.value(":none"), None);
        placeholders.value(":v");
        assert_eq!(placeholders.all_used(), Ok(()));
    }
}
