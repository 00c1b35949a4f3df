//! What an event has at the paths that rules name.

use std::cell::{Cell, OnceCell};

use serde_json::Value;

use super::grams::{WINDOW_SIZES, window_key};
use super::key_map::KeySet;
use super::path_trie::PathId;
use super::text_parts::TextParts;
use super::value_hash::ValueHasher;
use crate::filter::Operator;

pub(super) struct EventValues<'e> {
    /// By path.
    found: Vec<Found<'e>>,
    /// How much was compared.
    work: Cell<usize>,
}

pub(super) struct Found<'e> {
    pub(super) path: PathId,
    pub(super) value: &'e Value,
    hash: Cell<Option<u64>>,
    /// How often a text may still be searched from its beginning to its end.
    scans_left: Cell<u32>,
    prepared: OnceCell<Box<Prepared<'e>>>,
}

/// What is made of a long value that is asked for often.
#[derive(Default)]
struct Prepared<'e> {
    parts: OnceCell<TextParts<'e>>,
    /// What a text holds, by window size.
    windows: [OnceCell<KeySet<u64>>; WINDOW_SIZES.len()],
    /// What a list holds.
    items: OnceCell<KeySet<u64>>,
}

impl<'e> EventValues<'e> {
    /// `scans` is how often one text is searched as a whole before its parts are put in order.
    pub(super) fn new(found: Vec<(PathId, &'e Value)>, scans: u32) -> Self {
        let with_path = |(path, value)| Found {
            path,
            value,
            hash: Cell::new(None),
            scans_left: Cell::new(scans),
            prepared: OnceCell::new(),
        };
        let mut found: Vec<Found<'e>> = found.into_iter().map(with_path).collect();
        found.sort_unstable_by_key(|found| found.path);
        Self { found, work: Cell::new(0) }
    }

    pub(super) fn all(&self) -> &[Found<'e>] {
        &self.found
    }

    pub(super) fn find(&self, path: PathId) -> Option<&Found<'e>> {
        let at = self.found.binary_search_by_key(&path, |found| found.path).ok()?;
        Some(&self.found[at])
    }

    /// How many comparisons were made; one that goes through a list or a long text counts for several.
    pub(super) fn work(&self) -> usize {
        self.work.get()
    }

    /// Whether what is at `path` passes.
    pub(super) fn passes(&self, path: PathId, operator: Operator, expected: &Value) -> bool {
        let found = self.find(path);
        self.work.set(self.work.get() + 1 + effort(operator, expected, found));
        match (operator, expected, found.map(|found| (found, found.value))) {
            (Operator::Contains, Value::String(part), Some((found, Value::String(text)))) => {
                found.text_contains(text, part)
            }
            _ => operator.holds(expected, found.map(|found| found.value)),
        }
    }
}

/// What a comparison costs beside itself.
fn effort(operator: Operator, expected: &Value, found: Option<&Found<'_>>) -> usize {
    let searched = match operator {
        Operator::In | Operator::Nin => expected,
        Operator::Contains => found.map_or(&Value::Null, |found| found.value),
        _ => return 0,
    };
    match searched {
        Value::Array(items) => items.len() / 8,
        Value::String(text) => text.len() / 128,
        _ => 0,
    }
}

impl<'e> Found<'e> {
    /// The hash of the value, made when it is first asked for.
    pub(super) fn hash(&self, hasher: &ValueHasher) -> u64 {
        self.hash.get().unwrap_or_else(|| {
            let hash = hasher.hash(self.value);
            self.hash.set(Some(hash));
            hash
        })
    }

    fn prepared(&self) -> &Prepared<'e> {
        self.prepared.get_or_init(Box::default)
    }

    /// The keys of all windows of `text` of one size. Asked for where there are fewer keys to look for than windows.
    pub(super) fn windows(&self, text: &str, class: u8, seed: u64) -> &KeySet<u64> {
        let size = WINDOW_SIZES[usize::from(class)];
        self.prepared().windows[usize::from(class)].get_or_init(|| {
            text.as_bytes().windows(size).map(|window| window_key(class, window, seed)).collect()
        })
    }

    /// The hashes of the items of a list.
    pub(super) fn items(&self, items: &[Value], hasher: &ValueHasher) -> &KeySet<u64> {
        self.prepared().items.get_or_init(|| items.iter().map(|item| hasher.hash(item)).collect())
    }

    /// The same as `str::contains`, for a text that may be asked very often.
    fn text_contains(&self, text: &'e str, part: &str) -> bool {
        if self.scans_left.get() > 0 {
            self.scans_left.set(self.scans_left.get() - 1);
            return text.contains(part);
        }
        self.prepared().parts.get_or_init(|| TextParts::of(text)).contains(part)
    }
}
