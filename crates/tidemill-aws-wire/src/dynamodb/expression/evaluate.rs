//! Trying conditions on items.
//!
//! What an item does not have is equal to nothing, so a comparison with it fails, and `<>` holds. Values of two types are
//! never equal and have no order.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::condition::{Comparator, ItemCondition, Operand};
use crate::dynamodb::number::DecimalNumber;
use crate::dynamodb::value::{AttributeValue, Item};

impl ItemCondition {
    /// Whether the condition holds for an item. An item that is not there is one without attributes.
    pub fn holds(&self, item: &Item) -> bool {
        match self {
            Self::And(all) => all.iter().all(|condition| condition.holds(item)),
            Self::Or(any) => any.iter().any(|condition| condition.holds(item)),
            Self::Not(condition) => !condition.holds(item),
            Self::Compare { left, comparator, right } => compares(left, *comparator, right, item),
            Self::Between { operand, lower, upper } => {
                compares(operand, Comparator::GreaterOrEqual, lower, item)
                    && compares(operand, Comparator::LessOrEqual, upper, item)
            }
            Self::In { operand, candidates } => {
                candidates.iter().any(|candidate| compares(operand, Comparator::Equal, candidate, item))
            }
            Self::Constant(holds) => *holds,
            Self::Exists(path) => path.find(item).is_some(),
            Self::NotExists(path) => path.find(item).is_none(),
            Self::IsOfType { path, kind } => path.find(item).is_some_and(|value| value.kind() == *kind),
            Self::BeginsWith { operand, prefix } => both(operand, prefix, item, begins_with),
            Self::Contains { operand, sought } => both(operand, sought, item, contains),
        }
    }
}

impl Operand {
    fn value<'v>(&'v self, item: &'v Item) -> Option<Cow<'v, AttributeValue>> {
        match self {
            Self::Path(path) => path.find(item).map(Cow::Borrowed),
            Self::Value(value) => Some(Cow::Borrowed(value)),
            Self::Size(path) => path.find(item).and_then(size).map(Cow::Owned),
            Self::SizeOfValue(value) => size(value).map(Cow::Owned),
        }
    }
}

fn compares(left: &Operand, comparator: Comparator, right: &Operand, item: &Item) -> bool {
    let (left, right) = (left.value(item), right.value(item));
    let (Some(left), Some(right)) = (left, right) else { return comparator == Comparator::NotEqual };
    let order = || left.order(&right);
    match comparator {
        Comparator::Equal => left == right,
        Comparator::NotEqual => left != right,
        Comparator::Less => order().is_some_and(Ordering::is_lt),
        Comparator::LessOrEqual => order().is_some_and(Ordering::is_le),
        Comparator::Greater => order().is_some_and(Ordering::is_gt),
        Comparator::GreaterOrEqual => order().is_some_and(Ordering::is_ge),
    }
}

fn both(
    first: &Operand,
    second: &Operand,
    item: &Item,
    holds: fn(&AttributeValue, &AttributeValue) -> bool,
) -> bool {
    match (first.value(item), second.value(item)) {
        (Some(first), Some(second)) => holds(&first, &second),
        _ => false,
    }
}

fn begins_with(value: &AttributeValue, prefix: &AttributeValue) -> bool {
    match (value, prefix) {
        (AttributeValue::S(text), AttributeValue::S(prefix)) => text.starts_with(prefix.as_str()),
        (AttributeValue::B(bytes), AttributeValue::B(prefix)) => bytes.starts_with(prefix),
        _ => false,
    }
}

fn contains(value: &AttributeValue, sought: &AttributeValue) -> bool {
    match (value, sought) {
        (AttributeValue::S(text), AttributeValue::S(part)) => text.contains(part.as_str()),
        (AttributeValue::B(bytes), AttributeValue::B(part)) => {
            part.len() <= bytes.len() && memchr::memmem::find(bytes, part).is_some()
        }
        (AttributeValue::Ss(texts), AttributeValue::S(text)) => texts.contains(text),
        (AttributeValue::Ns(numbers), AttributeValue::N(number)) => numbers.contains(number),
        (AttributeValue::Bs(binaries), AttributeValue::B(bytes)) => binaries.contains(bytes),
        (AttributeValue::L(values), sought) => values.contains(sought),
        _ => false,
    }
}

/// How long a text or a binary is, or how many members a value has. Other types have no size. The documentation does not say
/// what the length of a text counts; here it is characters.
pub(super) fn size(value: &AttributeValue) -> Option<AttributeValue> {
    let count = match value {
        AttributeValue::S(text) => text.chars().count(),
        AttributeValue::B(bytes) => bytes.len(),
        AttributeValue::L(values) => values.len(),
        AttributeValue::M(fields) => fields.len(),
        AttributeValue::Ss(texts) => texts.len(),
        AttributeValue::Ns(numbers) => numbers.len(),
        AttributeValue::Bs(binaries) => binaries.len(),
        AttributeValue::N(_) | AttributeValue::Bool(_) | AttributeValue::Null => return None,
    };
    Some(AttributeValue::N(DecimalNumber::from_count(count)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_contains_its_parts() {
        for (bytes, part, expected) in [
            (&b""[..], &b""[..], true),
            (b"abc", b"", true),
            (b"abc", b"abc", true),
            (b"abc", b"bc", true),
            (b"abc", b"ac", false),
            (b"ab", b"abc", false),
        ] {
            let binary = |bytes: &[u8]| AttributeValue::B(bytes.to_vec());
            assert_eq!(contains(&binary(bytes), &binary(part)), expected, "{bytes:?} {part:?}");
        }
    }

    /// Each place compared with the part would be some 10^13 bytes to look at.
    #[test]
    fn a_part_is_sought_in_linear_time() {
        let bytes = AttributeValue::B(vec![0; 8_000_000]);
        let mut part = vec![0; 4_000_000];
        part.push(1);
        assert!(!contains(&bytes, &AttributeValue::B(part)));
    }
}
