//! A value with its place.

use serde_json::{Map, Number, Value};

use crate::position::TextPosition;

/// A value of a document and where it begins.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceNode {
    pub place: TextPosition,
    pub kind: SourceKind,
}

#[derive(Debug, Clone, PartialEq)]
pub enum SourceKind {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<SourceNode>),
    Map(Vec<SourceEntry>),
}

/// One key of a map with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct SourceEntry {
    pub key: String,
    /// Where the key begins.
    pub place: TextPosition,
    pub value: SourceNode,
}

impl SourceNode {
    /// The same value without its places.
    pub fn to_value(&self) -> Value {
        match &self.kind {
            SourceKind::Null => Value::Null,
            SourceKind::Bool(flag) => Value::Bool(*flag),
            SourceKind::Number(number) => Value::Number(number.clone()),
            SourceKind::Text(text) => Value::String(text.clone()),
            SourceKind::List(items) => Value::Array(items.iter().map(Self::to_value).collect()),
            SourceKind::Map(entries) => {
                let pairs = entries.iter().map(|entry| (entry.key.clone(), entry.value.to_value()));
                Value::Object(pairs.collect::<Map<_, _>>())
            }
        }
    }

    /// Where the field at `path` is, or the innermost part of the way that is there.
    ///
    /// A key may hold dots and brackets itself, so the longest key that fits is taken.
    pub fn place_of(&self, path: &str) -> TextPosition {
        let mut node = self;
        let mut place = self.place;
        let mut rest = path;
        loop {
            rest = rest.strip_prefix('.').unwrap_or(rest);
            let step = match &node.kind {
                SourceKind::List(items) => list_step(items, rest),
                SourceKind::Map(entries) => map_step(entries, rest),
                _ => None,
            };
            let Some((found, after)) = step else { return place };
            (node, place, rest) = (found, found.place, after);
        }
    }

    /// How many bytes it takes, roughly: what aliases may multiply is counted in these.
    pub(crate) fn weight(&self) -> usize {
        /// For the node itself.
        const EACH: usize = 64;
        EACH + match &self.kind {
            SourceKind::Null | SourceKind::Bool(_) | SourceKind::Number(_) => 0,
            SourceKind::Text(text) => text.len(),
            SourceKind::List(items) => items.iter().map(Self::weight).sum(),
            SourceKind::Map(entries) => {
                entries.iter().map(|entry| entry.key.len() + entry.value.weight()).sum()
            }
        }
    }
}

fn list_step<'a, 'p>(items: &'a [SourceNode], path: &'p str) -> Option<(&'a SourceNode, &'p str)> {
    let (index, after) = path.strip_prefix('[')?.split_once(']')?;
    Some((items.get(index.parse::<usize>().ok()?)?, after))
}

fn map_step<'a, 'p>(entries: &'a [SourceEntry], path: &'p str) -> Option<(&'a SourceNode, &'p str)> {
    let fitting = entries.iter().filter_map(|entry| {
        let after = path.strip_prefix(entry.key.as_str())?;
        (after.is_empty() || after.starts_with(['.', '['])).then_some((entry, after))
    });
    let (entry, after) = fitting.max_by_key(|(entry, _)| entry.key.len())?;
    Some((&entry.value, after))
}

/// The keys that a map has twice, each at its second place.
pub(crate) fn repeated_keys(entries: &[SourceEntry]) -> Vec<(&str, TextPosition)> {
    /// Up to here looking at all of them is quicker than a set.
    const FEW: usize = 16;
    if entries.len() <= FEW {
        let again =
            |(index, entry): (usize, &SourceEntry)| entries[..index].iter().any(|e| e.key == entry.key);
        let found = entries.iter().enumerate().filter(|&pair| again(pair));
        return found.map(|(_, entry)| (entry.key.as_str(), entry.place)).collect();
    }
    let mut seen = std::collections::HashSet::with_capacity(entries.len());
    let found = entries.iter().filter(|entry| !seen.insert(entry.key.as_str()));
    found.map(|entry| (entry.key.as_str(), entry.place)).collect()
}
