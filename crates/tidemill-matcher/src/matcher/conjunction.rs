//! Conditions that must hold together, with their paths looked up.

use std::sync::Arc;

use serde_json::Value;

use super::event_values::EventValues;
use super::path_trie::PathId;
use super::slab::Slot;
use crate::filter::{Logic, Operator, Rule, RuleGroup};

/// One alternative of a subscription's rules.
#[derive(Debug)]
pub(super) struct Conjunction {
    pub(super) subscription: Slot,
    /// Whether it is the only alternative; otherwise several may hold and the subscription is reported once.
    pub(super) lone: bool,
    /// The rules, if the alternatives say less than they do.
    pub(super) rules: Option<Arc<Tree>>,
    pub(super) predicates: Box<[Predicate]>,
}

/// One condition.
#[derive(Debug)]
pub(super) struct Predicate {
    pub(super) path: PathId,
    pub(super) operator: Operator,
    pub(super) value: Value,
}

/// Whole rules.
#[derive(Debug)]
pub(super) enum Tree {
    Condition(Predicate),
    Group(Logic, Box<[Tree]>),
}

impl Conjunction {
    pub(super) fn holds(&self, event: &EventValues<'_>) -> bool {
        self.predicates.iter().all(|one| one.holds(event))
            && self.rules.as_ref().is_none_or(|rules| rules.holds(event))
    }

    /// Reads what [`Conjunction::holds`] will read, and does nothing with it.
    pub(super) fn touch(&self) {
        for predicate in &self.predicates {
            if let Value::String(text) = &predicate.value {
                std::hint::black_box(text.as_bytes().first().copied());
            }
        }
    }

    /// How many comparisons it takes at most.
    pub(super) fn conditions(&self) -> usize {
        self.predicates.len() + self.rules.as_ref().map_or(0, |rules| rules.predicates().len())
    }

    /// About how many bytes its values take.
    pub(super) fn bytes(&self) -> usize {
        let whole = self.rules.iter().flat_map(|rules| rules.predicates());
        self.predicates.iter().chain(whole).map(|one| bytes_of(&one.value)).sum()
    }
}

impl Predicate {
    fn holds(&self, event: &EventValues<'_>) -> bool {
        event.passes(self.path, self.operator, &self.value)
    }
}

impl Tree {
    pub(super) fn of(
        group: &RuleGroup,
        predicate: &mut impl FnMut(&crate::filter::Condition) -> Predicate,
    ) -> Self {
        let part = |rule: &Rule| match rule {
            Rule::Condition(condition) => Self::Condition(predicate(condition)),
            Rule::Group(group) => Self::of(group, predicate),
        };
        Self::Group(group.logic, group.rules.iter().map(part).collect())
    }

    pub(super) fn predicates(&self) -> Vec<&Predicate> {
        match self {
            Self::Condition(predicate) => vec![predicate],
            Self::Group(_, parts) => parts.iter().flat_map(Self::predicates).collect(),
        }
    }

    fn holds(&self, event: &EventValues<'_>) -> bool {
        match self {
            Self::Condition(predicate) => predicate.holds(event),
            Self::Group(Logic::And, parts) => parts.iter().all(|part| part.holds(event)),
            Self::Group(Logic::Or, parts) => parts.is_empty() || parts.iter().any(|part| part.holds(event)),
        }
    }
}

/// About how many bytes a value takes.
pub(super) fn bytes_of(value: &Value) -> usize {
    size_of::<Value>()
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(bytes_of).sum(),
            Value::Object(fields) => fields.iter().map(|(name, value)| name.len() + bytes_of(value)).sum(),
            _ => 0,
        }
}
