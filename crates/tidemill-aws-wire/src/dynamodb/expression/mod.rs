//! Expressions: one language for conditions on keys and items, and for the parts of an item that are wanted.
//!
//! An expression is read and checked once, with the placeholders of its request; what was read can only be tried. Nothing
//! here knows a table: which attributes are keys comes with the question.

mod check;
mod condition;
mod constant;
mod error;
mod evaluate;
#[cfg(test)]
mod fixture;
mod key_condition;
mod parse;
mod path;
mod placeholders;
mod projection;
mod reserved_words;
mod token;

pub use condition::{Comparator, ItemCondition, Operand};
pub use error::{ExpressionError, ExpressionKind};
pub use key_condition::{KeyCondition, KeyConditionError, SortCondition};
pub use parse::{CANDIDATES_MAX, EXPRESSION_BYTES_MAX, EXPRESSION_DEPTH_MAX, OPERATORS_MAX};
pub use path::{DocumentPath, PATH_STEPS_MAX, PathStep};
pub use placeholders::{NAME_BYTES_MAX, PLACEHOLDER_BYTES_MAX, PlaceholderError, Placeholders};
pub use projection::ItemProjection;
