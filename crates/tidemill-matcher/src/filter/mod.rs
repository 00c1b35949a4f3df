//! Filter rules: which events of a type a subscription wants.
//!
//! Rules are read and checked once, when they are saved; what was read can only be right. There is no code and no
//! pattern in a rule: every operator is one bounded comparison. How rules are written is in docs/reference/filters.md; how many
//! of them are tried at once is the business of [`crate::matcher`].

mod comparison;
mod field_path;
mod operator;
mod parse;
mod rules;

pub use comparison::{compare_numbers, equal};
pub(crate) use comparison::{fraction, whole, whole_fraction};
pub(crate) use field_path::position;
pub use field_path::{FIELD_SEGMENTS_MAX, FieldPath};
pub use operator::Operator;
pub use parse::{
    CONDITIONS_MAX, FILTER_BYTES_MAX, GROUP_DEPTH_MAX, INVALID_FILTER, LIST_MAX, TEXT_BYTES_MAX,
};
pub use rules::{Condition, ConditionResult, FilterRules, Logic, Rule, RuleGroup};
