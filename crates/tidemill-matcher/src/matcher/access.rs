//! The ways to find a conjunction: comparisons that it must pass and that an event can look up.

use std::sync::Arc;

use serde_json::Value;

use super::affixes::affix_key;
use super::conjunction::{Conjunction, Predicate};
use super::grams::{Gram, grams};
use super::intervals::{Interval, number_key, text_key};
use super::key_map::join;
use super::path_trie::PathId;
use super::value_hash::ValueHasher;
use crate::filter::Operator;

/// How many keys a conjunction may have under a signature: the product of its lists.
const SIGNATURE_KEYS_MAX: usize = 64;
/// How often parts of the same field's text may be looked up one after the other.
const GRAM_STEPS_MAX: usize = 2;

/// A way to find a conjunction. The numbers are those of its predicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// By the values of all fields that are compared by `eq` and `in`, at once.
    Signature,
    /// By one such value.
    Equal(u8),
    /// By a part of a text, or an item of a list. `gram` is where the part begins.
    Contains {
        predicate: u8,
        gram: u16,
    },
    Prefix(u8),
    Suffix(u8),
    /// By an interval of numbers or of texts: all bounds of the field together.
    Numbers(u8),
    Texts(u8),
    /// By a field that is there, whatever it is.
    Present(u8),
    /// By a field that is not there.
    Absent(u8),
    /// Not at all: it is tried with every event that comes so far.
    Rest,
}

/// One place under which conjunctions hang. The way from the root to a node is a list of places.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    Signature(Arc<[PathId]>, u64),
    Equal(PathId, u64),
    Element(PathId, u64),
    Gram(PathId, Gram),
    Prefix(PathId, u16, u64),
    Suffix(PathId, u16, u64),
    /// Somewhere among the intervals of a field.
    Numbers(PathId),
    Texts(PathId),
    Present(PathId),
    Absent(PathId),
}

impl Access {
    /// Whether it narrows by a value and not only by what is there.
    pub(super) fn narrows(self) -> bool {
        !matches!(self, Self::Present(_) | Self::Absent(_) | Self::Rest)
    }
}

/// Every way to find `conjunction` that leads further than `trail` does, but for [`Access::Rest`].
pub(super) fn accesses(conjunction: &Conjunction, trail: &[Place], hasher: &ValueHasher) -> Vec<Access> {
    let mut ways = Vec::new();
    for (at, predicate) in (0_u8..).zip(&conjunction.predicates) {
        let path = predicate.path;
        let first = |fits: fn(&Predicate) -> bool| {
            !conjunction.predicates[..usize::from(at)].iter().any(|other| other.path == path && fits(other))
        };
        let used = |place: fn(&Place) -> Option<PathId>| trail.iter().any(|step| place(step) == Some(path));
        let way = match (predicate.operator, &predicate.value) {
            (Operator::Eq | Operator::In, _) => (!compared(trail, path)).then_some(Access::Equal(at)),
            (Operator::StartsWith, Value::String(text)) => {
                (!text.is_empty() && !used(Place::prefix)).then_some(Access::Prefix(at))
            }
            (Operator::EndsWith, Value::String(text)) => {
                (!text.is_empty() && !used(Place::suffix)).then_some(Access::Suffix(at))
            }
            (Operator::Contains, value) => can_look_for(value, path, trail, hasher)
                .then_some(Access::Contains { predicate: at, gram: 0 }),
            (Operator::Gt | Operator::Gte | Operator::Lt | Operator::Lte, Value::Number(_)) => {
                (first(Predicate::bounds_numbers) && !trail.contains(&Place::Numbers(path)))
                    .then_some(Access::Numbers(at))
            }
            (Operator::Gt | Operator::Gte | Operator::Lt | Operator::Lte, Value::String(_)) => {
                (first(Predicate::bounds_texts) && !trail.contains(&Place::Texts(path)))
                    .then_some(Access::Texts(at))
            }
            (Operator::Exists, Value::Bool(false)) => {
                (!trail.contains(&Place::Absent(path))).then_some(Access::Absent(at))
            }
            _ => None,
        };
        ways.extend(way);
        if predicate.operator.needs_the_field(&predicate.value)
            && first(|other| other.operator.needs_the_field(&other.value))
            && !trail.iter().any(|step| step.needs(path))
        {
            ways.push(Access::Present(at));
        }
    }
    if signature(conjunction, trail, hasher).is_some() {
        ways.push(Access::Signature);
    }
    ways
}

/// The places where `access` finds `conjunction`; none for intervals and the rest, which are no places.
pub(super) fn places(
    access: Access,
    conjunction: &Conjunction,
    trail: &[Place],
    hasher: &ValueHasher,
) -> Vec<Place> {
    let predicate = |at: u8| &conjunction.predicates[usize::from(at)];
    match access {
        Access::Signature => {
            let (paths, keys) = signature(conjunction, trail, hasher).expect("the way was offered");
            keys.into_iter().map(|key| Place::Signature(Arc::clone(&paths), key)).collect()
        }
        Access::Equal(at) => {
            let Predicate { path, .. } = predicate(at);
            predicate(at).equal_keys(hasher).into_iter().map(|key| Place::Equal(*path, key)).collect()
        }
        Access::Contains { predicate: at, gram } => {
            let Predicate { path, value, .. } = predicate(at);
            // The field may be a list that has it as an item, or a text that has it as a part.
            let mut places = vec![Place::Element(*path, hasher.hash(value))];
            if let Value::String(text) = value {
                places
                    .extend(grams(text, hasher.seed()).nth(gram.into()).map(|gram| Place::Gram(*path, gram)));
            }
            places
        }
        Access::Prefix(at) => {
            let bytes = predicate(at).text();
            vec![Place::Prefix(predicate(at).path, length(bytes), affix_key(bytes.iter(), hasher.seed()))]
        }
        Access::Suffix(at) => {
            let bytes = predicate(at).text();
            vec![Place::Suffix(
                predicate(at).path,
                length(bytes),
                affix_key(bytes.iter().rev(), hasher.seed()),
            )]
        }
        Access::Present(at) => vec![Place::Present(predicate(at).path)],
        Access::Absent(at) => vec![Place::Absent(predicate(at).path)],
        Access::Numbers(_) | Access::Texts(_) | Access::Rest => Vec::new(),
    }
}

/// All bounds of numbers that `conjunction` has for `path`, as one interval.
pub(super) fn number_interval(conjunction: &Conjunction, path: PathId) -> Interval {
    interval(conjunction, path, |value| value.as_number().map(number_key))
}

/// The same for texts.
pub(super) fn text_interval(conjunction: &Conjunction, path: PathId) -> Interval {
    interval(conjunction, path, |value| value.as_str().map(text_key))
}

fn interval(conjunction: &Conjunction, path: PathId, key: impl Fn(&Value) -> Option<u128>) -> Interval {
    let mut interval = Interval { low: u128::MIN, high: u128::MAX };
    for predicate in conjunction.predicates.iter().filter(|predicate| predicate.path == path) {
        let Some(key) = key(&predicate.value) else { continue };
        match predicate.operator {
            // Keys are rounded, so a bound that is left out is taken in.
            Operator::Gt | Operator::Gte => interval.low = interval.low.max(key),
            Operator::Lt | Operator::Lte => interval.high = interval.high.min(key),
            _ => {}
        }
    }
    // Bounds that leave nothing match nothing; any place will do.
    interval.high = interval.high.max(interval.low);
    interval
}

/// The fields that are compared by `eq` or `in`, and a key for each choice of their values. None if there are fewer
/// than two, or too many choices.
fn signature(
    conjunction: &Conjunction,
    trail: &[Place],
    hasher: &ValueHasher,
) -> Option<(Arc<[PathId]>, Vec<u64>)> {
    let mut parts: Vec<&Predicate> = conjunction
        .predicates
        .iter()
        .filter(|one| matches!(one.operator, Operator::Eq | Operator::In) && !compared(trail, one.path))
        .collect();
    // The shortest list stands for its field.
    parts.sort_by_key(|one| (one.path, one.choices()));
    parts.dedup_by_key(|one| one.path);
    let choices = parts.iter().try_fold(1_usize, |product, one| product.checked_mul(one.choices()))?;
    if parts.len() < 2 || choices > SIGNATURE_KEYS_MAX {
        return None;
    }
    let mut keys = vec![hasher.seed()];
    for part in &parts {
        let values = part.equal_keys(hasher);
        keys = keys.iter().flat_map(|key| values.iter().map(|value| join(*key, *value))).collect();
    }
    Some((parts.iter().map(|one| one.path).collect(), keys))
}

fn compared(trail: &[Place], path: PathId) -> bool {
    trail.iter().any(|step| match step {
        Place::Equal(used, _) => *used == path,
        Place::Signature(used, _) => used.contains(&path),
        _ => false,
    })
}

fn can_look_for(value: &Value, path: PathId, trail: &[Place], hasher: &ValueHasher) -> bool {
    let steps = trail.iter().filter(|step| matches!(step, Place::Gram(used, _) if *used == path)).count();
    // Every text has the empty one as a part, which no part can find.
    let something = value.as_str().is_none_or(|text| !text.is_empty());
    something && steps < GRAM_STEPS_MAX && !trail.contains(&Place::Element(path, hasher.hash(value)))
}

fn length(bytes: &[u8]) -> u16 {
    u16::try_from(bytes.len()).expect("texts of rules are short")
}

impl Place {
    /// The field that must be there, unless they are several or none.
    pub(super) fn path(&self) -> Option<PathId> {
        match self {
            Self::Signature(..) | Self::Absent(_) => None,
            Self::Equal(path, _)
            | Self::Element(path, _)
            | Self::Gram(path, _)
            | Self::Prefix(path, ..)
            | Self::Suffix(path, ..)
            | Self::Numbers(path)
            | Self::Texts(path)
            | Self::Present(path) => Some(*path),
        }
    }

    fn prefix(&self) -> Option<PathId> {
        matches!(self, Self::Prefix(..)).then(|| self.path())?
    }

    fn suffix(&self) -> Option<PathId> {
        matches!(self, Self::Suffix(..)).then(|| self.path())?
    }

    fn needs(&self, path: PathId) -> bool {
        match self {
            Self::Signature(paths, _) => paths.contains(&path),
            place => place.path() == Some(path),
        }
    }
}

impl Predicate {
    fn choices(&self) -> usize {
        match (self.operator, &self.value) {
            (Operator::In, Value::Array(items)) => items.len(),
            _ => 1,
        }
    }

    /// The hashes of the values that an `eq` or `in` lets pass, each once.
    fn equal_keys(&self, hasher: &ValueHasher) -> Vec<u64> {
        let mut keys: Vec<u64> = match (self.operator, &self.value) {
            (Operator::In, Value::Array(items)) => items.iter().map(|item| hasher.hash(item)).collect(),
            (_, value) => vec![hasher.hash(value)],
        };
        keys.sort_unstable();
        keys.dedup();
        keys
    }

    fn text(&self) -> &[u8] {
        self.value.as_str().unwrap_or_default().as_bytes()
    }

    fn bounds_numbers(&self) -> bool {
        self.is_bound() && self.value.is_number()
    }

    fn bounds_texts(&self) -> bool {
        self.is_bound() && self.value.is_string()
    }

    fn is_bound(&self) -> bool {
        matches!(self.operator, Operator::Gt | Operator::Gte | Operator::Lt | Operator::Lte)
    }
}
