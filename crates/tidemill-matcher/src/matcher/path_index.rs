//! What can be looked up by the value of one field.

use serde_json::Value;

use super::access::Place;
use super::affixes::Affixes;
use super::event_values::{EventValues, Found};
use super::grams::Grams;
use super::intervals::{Intervals, number_key, text_key};
use super::key_map::KeyMap;
use super::node::Node;
use super::slab::Slot;
use super::value_hash::ValueHasher;

#[derive(Debug, Default)]
pub(super) struct PathIndex {
    /// By the whole value.
    equal: KeyMap<u64, Node>,
    /// By an item, if the value is a list.
    elements: KeyMap<u64, Node>,
    texts: Option<Box<TextIndex>>,
    numbers: Option<Box<Intervals>>,
    /// Whatever the value is.
    present: Option<Node>,
}

/// What only texts can be asked for.
#[derive(Debug, Default)]
struct TextIndex {
    prefixes: Affixes,
    suffixes: Affixes,
    grams: Grams,
    order: Intervals,
}

impl PathIndex {
    pub(super) fn is_empty(&self) -> bool {
        self.equal.is_empty()
            && self.elements.is_empty()
            && self.texts.is_none()
            && self.numbers.is_none()
            && self.present.is_none()
    }

    /// What hangs at a place of this field.
    pub(super) fn at(&self, place: &Place) -> Option<&Node> {
        let texts = self.texts.as_ref();
        match place {
            Place::Equal(_, key) => self.equal.get(key),
            Place::Element(_, key) => self.elements.get(key),
            Place::Prefix(_, _, key) => texts?.prefixes.nodes.get(key),
            Place::Suffix(_, _, key) => texts?.suffixes.nodes.get(key),
            Place::Gram(_, gram) => {
                let (nodes, key) = texts?.grams.map(*gram);
                nodes.get(&key)
            }
            Place::Present(_) => self.present.as_ref(),
            Place::Signature(..) | Place::Absent(_) | Place::Numbers(_) | Place::Texts(_) => None,
        }
    }

    /// Hangs `first` at a place where nothing hangs, or gives what hangs there.
    pub(super) fn hang(&mut self, place: &Place, first: Slot) -> Option<&mut Node> {
        match place {
            Place::Equal(_, key) => hang(&mut self.equal, *key, first),
            Place::Element(_, key) => hang(&mut self.elements, *key, first),
            Place::Prefix(_, length, key) => hang_affix(&mut self.texts().prefixes, *length, *key, first),
            Place::Suffix(_, length, key) => hang_affix(&mut self.texts().suffixes, *length, *key, first),
            Place::Gram(_, gram) => {
                let (nodes, key) = self.texts().grams.map_mut(*gram);
                hang(nodes, key, first)
            }
            Place::Present(_) => {
                if self.present.is_none() {
                    self.present = Some(Node::One(first));
                    return None;
                }
                self.present.as_mut()
            }
            Place::Signature(..) | Place::Absent(_) | Place::Numbers(_) | Place::Texts(_) => None,
        }
    }

    /// Lets `change` at what hangs at a place, and takes it down if that says that nothing is left.
    pub(super) fn shrink(&mut self, place: &Place, change: impl FnOnce(&mut Node) -> bool) {
        match place {
            Place::Equal(_, key) => drop(shrink(&mut self.equal, *key, change)),
            Place::Element(_, key) => drop(shrink(&mut self.elements, *key, change)),
            Place::Prefix(_, length, key) => shrink_affix(&mut self.texts().prefixes, *length, *key, change),
            Place::Suffix(_, length, key) => shrink_affix(&mut self.texts().suffixes, *length, *key, change),
            Place::Gram(_, gram) => {
                let (nodes, key) = self.texts().grams.map_mut(*gram);
                shrink(nodes, key, change);
            }
            Place::Present(_) => {
                if self.present.as_mut().is_some_and(change) {
                    self.present = None;
                }
            }
            Place::Signature(..) | Place::Absent(_) | Place::Numbers(_) | Place::Texts(_) => {}
        }
        self.tidy();
    }

    pub(super) fn numbers(&self) -> Option<&Intervals> {
        self.numbers.as_deref()
    }

    pub(super) fn text_order(&self) -> Option<&Intervals> {
        self.texts.as_ref().map(|texts| &texts.order)
    }

    pub(super) fn change_numbers(&mut self, change: impl FnOnce(&mut Intervals)) {
        change(self.numbers.get_or_insert_default());
        self.tidy();
    }

    pub(super) fn change_text_order(&mut self, change: impl FnOnce(&mut Intervals)) {
        change(&mut self.texts().order);
        self.tidy();
    }

    fn texts(&mut self) -> &mut TextIndex {
        self.texts.get_or_insert_default()
    }

    fn tidy(&mut self) {
        self.numbers.take_if(|numbers| numbers.is_empty());
        self.texts.take_if(|texts| {
            texts.prefixes.is_empty()
                && texts.suffixes.is_empty()
                && texts.grams.is_empty()
                && texts.order.is_empty()
        });
    }

    /// Everything that an event with `value` in this field may match.
    pub(super) fn visit(
        &self,
        value: &Found<'_>,
        event: &EventValues<'_>,
        hasher: &ValueHasher,
        found: &mut dyn FnMut(Slot),
    ) {
        if let Some(node) = &self.present {
            node.visit(event, hasher, found);
        }
        if !self.equal.is_empty()
            && let Some(node) = self.equal.get(&value.hash(hasher))
        {
            node.visit(event, hasher, found);
        }
        match value.value {
            Value::String(text) => {
                if let Some(texts) = &self.texts {
                    texts.visit(text, value, event, hasher, found);
                }
            }
            Value::Number(number) => {
                if let Some(numbers) = &self.numbers {
                    numbers.visit(number_key(number), event, hasher, found);
                }
            }
            Value::Array(items) if !self.elements.is_empty() => {
                let keys = value.items(items, hasher);
                if self.elements.len() < keys.len() {
                    let held = self.elements.iter().filter(|(key, _)| keys.contains(key));
                    held.for_each(|(_, node)| node.visit(event, hasher, found));
                } else {
                    let held = keys.iter().filter_map(|key| self.elements.get(key));
                    held.for_each(|node| node.visit(event, hasher, found));
                }
            }
            _ => {}
        }
    }
}

impl TextIndex {
    fn visit(
        &self,
        text: &str,
        value: &Found<'_>,
        event: &EventValues<'_>,
        hasher: &ValueHasher,
        found: &mut dyn FnMut(Slot),
    ) {
        let (bytes, seed) = (text.as_bytes(), hasher.seed());
        self.prefixes.visit(bytes.iter(), seed, |node| node.visit(event, hasher, found));
        self.suffixes.visit(bytes.iter().rev(), seed, |node| node.visit(event, hasher, found));
        self.grams.visit(text, value, seed, |node| node.visit(event, hasher, found));
        self.order.visit(text_key(text), event, hasher, found);
    }
}

/// Hangs `first` under a free key, or gives what hangs there.
pub(super) fn hang(nodes: &mut KeyMap<u64, Node>, key: u64, first: Slot) -> Option<&mut Node> {
    use std::collections::hash_map::Entry;
    match nodes.entry(key) {
        Entry::Occupied(taken) => Some(taken.into_mut()),
        Entry::Vacant(free) => {
            free.insert(Node::One(first));
            None
        }
    }
}

/// Lets `change` at what hangs under `key`; takes it down and says so if nothing is left.
pub(super) fn shrink(
    nodes: &mut KeyMap<u64, Node>,
    key: u64,
    change: impl FnOnce(&mut Node) -> bool,
) -> bool {
    let empty = nodes.get_mut(&key).is_some_and(change);
    if empty {
        nodes.remove(&key);
    }
    empty
}

fn hang_affix(affixes: &mut Affixes, length: u16, key: u64, first: Slot) -> Option<&mut Node> {
    if !affixes.nodes.contains_key(&key) {
        affixes.began(length);
    }
    hang(&mut affixes.nodes, key, first)
}

fn shrink_affix(affixes: &mut Affixes, length: u16, key: u64, change: impl FnOnce(&mut Node) -> bool) {
    if shrink(&mut affixes.nodes, key, change) {
        affixes.ended(length);
    }
}
