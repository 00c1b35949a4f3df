//! Conditions: what a filter or a conditional put says of an item, read and checked.
//!
//! How they are read is in `parse`, what they mean in `evaluate`, what is known of them without an item in `constant`.

use std::sync::Arc;

use super::path::DocumentPath;
use crate::dynamodb::value::{AttributeType, AttributeValue};

/// What is said of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ItemCondition {
    /// All of them hold.
    And(Vec<ItemCondition>),
    /// One of them holds.
    Or(Vec<ItemCondition>),
    Not(Box<ItemCondition>),
    Compare {
        left: Operand,
        comparator: Comparator,
        right: Operand,
    },
    Between {
        operand: Operand,
        lower: Operand,
        upper: Operand,
    },
    In {
        operand: Operand,
        candidates: Vec<Operand>,
    },
    /// The same for every item.
    Constant(bool),
    Exists(DocumentPath),
    NotExists(DocumentPath),
    IsOfType {
        path: DocumentPath,
        kind: AttributeType,
    },
    BeginsWith {
        operand: Operand,
        prefix: Operand,
    },
    Contains {
        operand: Operand,
        sought: Operand,
    },
}

/// What is compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operand {
    Path(DocumentPath),
    Value(Arc<AttributeValue>),
    /// How long the value at a path is, or how many members it has.
    Size(DocumentPath),
    /// The same of a value of the request.
    SizeOfValue(Arc<AttributeValue>),
}

/// How two operands are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparator {
    pub const ALL: [Self; 6] =
        [Self::Equal, Self::NotEqual, Self::Less, Self::LessOrEqual, Self::Greater, Self::GreaterOrEqual];

    pub const fn sign(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "<>",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }

    /// The comparator that says the same with its operands exchanged.
    #[must_use]
    pub const fn flipped(self) -> Self {
        match self {
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
            Self::Equal | Self::NotEqual => self,
        }
    }
}

impl ItemCondition {
    /// Whether the condition is about the attribute of that name, or a part of it.
    pub fn names(&self, attribute: &str) -> bool {
        let path = |path: &DocumentPath| &*path.attribute == attribute;
        let operand = |operand: &Operand| match operand {
            Operand::Path(found) | Operand::Size(found) => path(found),
            Operand::Value(_) | Operand::SizeOfValue(_) => false,
        };
        match self {
            Self::And(parts) | Self::Or(parts) => parts.iter().any(|part| part.names(attribute)),
            Self::Not(condition) => condition.names(attribute),
            Self::Compare { left, right, .. } => operand(left) || operand(right),
            Self::Between { operand: first, lower, upper } => {
                operand(first) || operand(lower) || operand(upper)
            }
            Self::In { operand: first, candidates } => operand(first) || candidates.iter().any(operand),
            Self::Constant(_) => false,
            Self::Exists(found) | Self::NotExists(found) | Self::IsOfType { path: found, .. } => path(found),
            Self::BeginsWith { operand: first, prefix: second }
            | Self::Contains { operand: first, sought: second } => operand(first) || operand(second),
        }
    }
}
