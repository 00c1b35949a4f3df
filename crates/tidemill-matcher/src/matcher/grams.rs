//! Parts of texts: which of many short texts stand somewhere in a long one.
//!
//! A text to look for is kept under one of its windows of 8 bytes (of 4, 2 or 1 if it is shorter). A long text is
//! asked for each of its own windows. Unlike an automaton over all texts, this takes and loses one at a time.

use super::event_values::Found;
use super::key_map::{KeyMap, KeySet, mix};
use super::node::Node;

/// Window sizes, the largest that fits is taken.
pub(super) const WINDOW_SIZES: [usize; 4] = [8, 4, 2, 1];
/// From how many windows on a text's windows are collected, to be asked by many sets of keys.
const COLLECT_MIN: usize = 256;
/// How many windows of a text are offered.
const WINDOWS_MAX: usize = 32;

/// One window: its size and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gram {
    class: u8,
    key: u64,
}

#[derive(Debug, Default)]
pub(super) struct Grams {
    classes: [KeyMap<u64, Node>; 4],
}

/// The windows of a text to look for, spread over its length.
pub(super) fn grams(text: &str, seed: u64) -> impl Iterator<Item = Gram> {
    let bytes = text.as_bytes();
    let class = (0_u8..).zip(WINDOW_SIZES).find(|(_, size)| *size <= bytes.len());
    class.into_iter().flat_map(move |(class, size)| {
        let count = bytes.len() - size + 1;
        bytes
            .windows(size)
            .step_by(count.div_ceil(WINDOWS_MAX))
            .map(move |window| Gram { class, key: window_key(class, window, seed) })
    })
}

pub(super) fn window_key(class: u8, window: &[u8], seed: u64) -> u64 {
    let mut bytes = [0; 8];
    bytes[..window.len()].copy_from_slice(window);
    mix(u64::from_ne_bytes(bytes) ^ seed.rotate_left(u32::from(class) * 8))
}

impl Grams {
    pub(super) fn map(&self, gram: Gram) -> (&KeyMap<u64, Node>, u64) {
        (&self.classes[usize::from(gram.class)], gram.key)
    }

    pub(super) fn map_mut(&mut self, gram: Gram) -> (&mut KeyMap<u64, Node>, u64) {
        (&mut self.classes[usize::from(gram.class)], gram.key)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.classes.iter().all(KeyMap::is_empty)
    }

    /// Every node under a window of `text`, each once. `value` is where the text was found.
    pub(super) fn visit(&self, text: &str, value: &Found<'_>, seed: u64, mut found: impl FnMut(&Node)) {
        for ((class, size), nodes) in (0_u8..).zip(WINDOW_SIZES).zip(&self.classes) {
            let count = (text.len() + 1).saturating_sub(size);
            if nodes.is_empty() || count == 0 {
                continue;
            }
            if count >= COLLECT_MIN && nodes.len() < count {
                let windows = value.windows(text, class, seed);
                nodes.iter().filter(|(key, _)| windows.contains(key)).for_each(|(_, node)| found(node));
                continue;
            }
            let mut hit = KeySet::default();
            for window in text.as_bytes().windows(size) {
                let key = window_key(class, window, seed);
                if let Some(node) = nodes.get(&key)
                    && hit.insert(key)
                {
                    found(node);
                }
            }
        }
    }
}
