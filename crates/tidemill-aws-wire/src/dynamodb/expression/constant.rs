//! Constants: what a condition says of the values of its request alone.
//!
//! It is judged once, when the request is read, and not again for every item that is looked at. The condition keeps its form, so
//! which attributes it names can still be asked.

use std::sync::Arc;

use super::condition::{ItemCondition, Operand};
use super::evaluate::size;
use crate::dynamodb::value::Item;

impl ItemCondition {
    /// The same condition, with everything computed that does not depend on an item.
    #[must_use]
    pub fn with_constants_judged(self) -> Self {
        let judged = match self {
            Self::And(parts) => Self::And(parts.into_iter().map(Self::with_constants_judged).collect()),
            Self::Or(parts) => Self::Or(parts.into_iter().map(Self::with_constants_judged).collect()),
            Self::Not(condition) => Self::Not(Box::new(condition.with_constants_judged())),
            Self::Compare { left, comparator, right } => {
                Self::Compare { left: left.computed(), comparator, right: right.computed() }
            }
            Self::Between { operand, lower, upper } => Self::Between {
                operand: operand.computed(),
                lower: lower.computed(),
                upper: upper.computed(),
            },
            Self::In { operand, candidates } => Self::In {
                operand: operand.computed(),
                candidates: candidates.into_iter().map(Operand::computed).collect(),
            },
            other => other,
        };
        if judged.is_constant() { Self::Constant(judged.holds(&Item::new())) } else { judged }
    }

    /// Whether all operands are values of the request. What is made of conditions is none: its parts were judged.
    fn is_constant(&self) -> bool {
        let is_value = |operand: &Operand| matches!(operand, Operand::Value(_) | Operand::SizeOfValue(_));
        match self {
            Self::And(_)
            | Self::Or(_)
            | Self::Not(_)
            | Self::Constant(_)
            | Self::Exists(_)
            | Self::NotExists(_)
            | Self::IsOfType { .. } => false,
            Self::Compare { left, right, .. } => is_value(left) && is_value(right),
            Self::Between { operand, lower, upper } => [operand, lower, upper].into_iter().all(is_value),
            Self::In { operand, candidates } => is_value(operand) && candidates.iter().all(is_value),
            Self::BeginsWith { operand: first, prefix: second }
            | Self::Contains { operand: first, sought: second } => is_value(first) && is_value(second),
        }
    }
}

impl Operand {
    /// The size of a value as a value.
    fn computed(self) -> Self {
        match self {
            Self::SizeOfValue(value) => match size(&value) {
                Some(size) => Self::Value(Arc::new(size)),
                None => Self::SizeOfValue(value),
            },
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::dynamodb::expression::ItemCondition;
    use crate::dynamodb::expression::fixture::parsed;

    #[test]
    fn what_needs_no_item_is_a_constant() {
        for (text, expected) in [
            (":1 = :2", false),
            (":1 <> :2", true),
            ("size(:s) = :1", true),
            ("contains(:s, :t)", false),
            ("begins_with(:s, :s)", true),
            (":1 IN (:2, :1)", true),
            (":1 BETWEEN :1 AND :2", true),
        ] {
            assert_eq!(parsed(text).with_constants_judged(), ItemCondition::Constant(expected), "{text}");
        }
    }

    #[test]
    fn what_needs_an_item_keeps_its_form() {
        for (text, same) in [
            ("a = :1 OR NOT size(b) > :1", "a = :1 OR NOT size(b) > :1"),
            ("a > size(:s)", "a > :1"),
            ("a IN (b, size(:s))", "a IN (b, :1)"),
        ] {
            assert_eq!(parsed(text).with_constants_judged(), parsed(same), "{text}");
        }
        let mixed = parsed(":1 = :1 OR a = :1").with_constants_judged();
        assert_eq!(mixed, ItemCondition::Or(vec![ItemCondition::Constant(true), parsed("a = :1")]));
        assert!(mixed.names("a"));
    }
}
