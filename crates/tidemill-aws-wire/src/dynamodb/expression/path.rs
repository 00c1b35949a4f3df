//! Paths into a document: the name of an attribute, and names and places within it.

use std::fmt;
use std::sync::Arc;

use crate::dynamodb::value::{AttributeValue, Item};

/// How many names and places a path may have.
pub const PATH_STEPS_MAX: usize = 32;

/// One step into a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathStep {
    /// A field of a map. A name from a placeholder is taken as it is: a dot in it is part of the name.
    Field(Arc<str>),
    /// A place in a list.
    Place(usize),
}

/// A path: an attribute of the item, and steps into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentPath {
    /// Names are shared with the placeholders they come from.
    pub attribute: Arc<str>,
    pub steps: Vec<PathStep>,
}

impl DocumentPath {
    /// An attribute as a whole.
    pub fn attribute(name: impl Into<Arc<str>>) -> Self {
        Self { attribute: name.into(), steps: Vec::new() }
    }

    /// What the item has there.
    pub fn find<'i>(&self, item: &'i Item) -> Option<&'i AttributeValue> {
        self.steps.iter().try_fold(item.get(&*self.attribute)?, |value, step| match (value, step) {
            (AttributeValue::M(fields), PathStep::Field(name)) => fields.get(&**name),
            (AttributeValue::L(values), PathStep::Place(place)) => values.get(*place),
            _ => None,
        })
    }
}

/// As AWS shows paths in its errors: `[a, b, [0]]`.
impl fmt::Display for DocumentPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "[{}", self.attribute)?;
        for step in &self.steps {
            match step {
                PathStep::Field(name) => write!(out, ", {name}")?,
                PathStep::Place(place) => write!(out, ", [{place}]")?,
            }
        }
        out.write_str("]")
    }
}
