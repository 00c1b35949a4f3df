//! A value with its place.

use serde_json::{Map, Number, Value};

use super::place::Place;

/// A value of a document and where it begins.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    pub place: Place,
    pub kind: Kind,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Kind {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

/// One key of a map with its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    pub key: String,
    /// Where the key begins.
    pub place: Place,
    pub value: Node,
}

impl Node {
    /// The same value without its places.
    pub fn to_value(&self) -> Value {
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Bool(flag) => Value::Bool(*flag),
            Kind::Number(number) => Value::Number(number.clone()),
            Kind::Text(text) => Value::String(text.clone()),
            Kind::List(items) => Value::Array(items.iter().map(Self::to_value).collect()),
            Kind::Map(entries) => {
                let pairs = entries.iter().map(|entry| (entry.key.clone(), entry.value.to_value()));
                Value::Object(pairs.collect::<Map<_, _>>())
            }
        }
    }

    /// Where the field at `path` is, or the innermost part of the way that is there.
    ///
    /// A key may hold dots and brackets itself, so the longest key that fits is taken.
    pub fn place_of(&self, path: &str) -> Place {
        let mut node = self;
        let mut place = self.place;
        let mut rest = path;
        loop {
            rest = rest.strip_prefix('.').unwrap_or(rest);
            let step = match &node.kind {
                Kind::List(items) => list_step(items, rest),
                Kind::Map(entries) => map_step(entries, rest),
                _ => None,
            };
            let Some((found, after)) = step else { return place };
            (node, place, rest) = (found, found.place, after);
        }
    }

    /// How many bytes it takes, roughly: what aliases may multiply is counted in these.
    pub(super) fn weight(&self) -> usize {
        /// For the node itself.
        const EACH: usize = 64;
        EACH + match &self.kind {
            Kind::Null | Kind::Bool(_) | Kind::Number(_) => 0,
            Kind::Text(text) => text.len(),
            Kind::List(items) => items.iter().map(Self::weight).sum(),
            Kind::Map(entries) => entries.iter().map(|entry| entry.key.len() + entry.value.weight()).sum(),
        }
    }
}

fn list_step<'a, 'p>(items: &'a [Node], path: &'p str) -> Option<(&'a Node, &'p str)> {
    let (index, after) = path.strip_prefix('[')?.split_once(']')?;
    Some((items.get(index.parse::<usize>().ok()?)?, after))
}

fn map_step<'a, 'p>(entries: &'a [Entry], path: &'p str) -> Option<(&'a Node, &'p str)> {
    let fitting = entries.iter().filter_map(|entry| {
        let after = path.strip_prefix(entry.key.as_str())?;
        (after.is_empty() || after.starts_with(['.', '['])).then_some((entry, after))
    });
    let (entry, after) = fitting.max_by_key(|(entry, _)| entry.key.len())?;
    Some((&entry.value, after))
}

/// The keys that a map has twice, each at its second place.
pub(super) fn repeated_keys(entries: &[Entry]) -> Vec<(&str, Place)> {
    /// Up to here looking at all of them is quicker than a set.
    const FEW: usize = 16;
    if entries.len() <= FEW {
        let again = |(index, entry): (usize, &Entry)| entries[..index].iter().any(|e| e.key == entry.key);
        let found = entries.iter().enumerate().filter(|&pair| again(pair));
        return found.map(|(_, entry)| (entry.key.as_str(), entry.place)).collect();
    }
    let mut seen = std::collections::HashSet::with_capacity(entries.len());
    let found = entries.iter().filter(|entry| !seen.insert(entry.key.as_str()));
    found.map(|entry| (entry.key.as_str(), entry.place)).collect()
}
