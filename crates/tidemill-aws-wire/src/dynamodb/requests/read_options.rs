//! What the requests that read many items have in common: how much of what they want, and where they go on.

use super::members::Members;
use crate::dynamodb::error::DynamoDbError;
use crate::dynamodb::key_schema::KeySchema;
use crate::dynamodb::value::{AttributeType, Item};

/// What a query or a scan gives back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Select {
    AllAttributes,
    AllProjectedAttributes,
    SpecificAttributes,
    /// How many there are, without the items.
    Count,
}

/// How much is said of the capacity that a request used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ReturnConsumedCapacity {
    Indexes,
    Total,
    #[default]
    None,
}

pub(super) fn consumed_capacity(members: &mut Members<'_>) -> Result<ReturnConsumedCapacity, DynamoDbError> {
    let words = [
        ("INDEXES", ReturnConsumedCapacity::Indexes),
        ("TOTAL", ReturnConsumedCapacity::Total),
        ("NONE", ReturnConsumedCapacity::None),
    ];
    Ok(members.word("ReturnConsumedCapacity", &words)?.unwrap_or_default())
}

pub(super) fn select(members: &mut Members<'_>) -> Result<Option<Select>, DynamoDbError> {
    let words = [
        ("SPECIFIC_ATTRIBUTES", Select::SpecificAttributes),
        ("COUNT", Select::Count),
        ("ALL_ATTRIBUTES", Select::AllAttributes),
        ("ALL_PROJECTED_ATTRIBUTES", Select::AllProjectedAttributes),
    ];
    members.word("Select", &words)
}

/// What is selected, if it goes together with the other parameters.
pub(super) fn selected(
    select: Option<Select>,
    has_projection: bool,
    has_index: bool,
) -> Result<Select, DynamoDbError> {
    let refused = |message: &str| Err(DynamoDbError::validation(message));
    match (select, has_projection) {
        (Some(Select::Count), true) => {
            refused("Cannot specify the ProjectionExpression when choosing to get only the Count")
        }
        (Some(Select::AllAttributes), true) => {
            refused("Cannot specify the ProjectionExpression when choosing to get ALL_ATTRIBUTES")
        }
        (Some(Select::AllProjectedAttributes), true) => {
            refused("Cannot specify the ProjectionExpression when choosing to get ALL_PROJECTED_ATTRIBUTES")
        }
        (Some(Select::SpecificAttributes), false) => refused(
            "One or more parameter values were invalid: Must specify the AttributesToGet or ProjectionExpression \
             when choosing to get SPECIFIC_ATTRIBUTES",
        ),
        (Some(Select::AllProjectedAttributes), false) if !has_index => refused(
            "One or more parameter values were invalid: ALL_PROJECTED_ATTRIBUTES can be used only when Querying \
             using an IndexName",
        ),
        (Some(select), _) => Ok(select),
        (None, true) => Ok(Select::SpecificAttributes),
        (None, false) if has_index => Ok(Select::AllProjectedAttributes),
        (None, false) => Ok(Select::AllAttributes),
    }
}

/// Where a page begins: a key of the table, and one of the index if there is one. Nothing else may be in it.
pub(super) fn start_key_fits(start: &Item, table: &KeySchema, index: Option<&KeySchema>) -> bool {
    let schemas = [Some(table), index];
    let mut names: Vec<_> =
        schemas.into_iter().flatten().flat_map(|schema| [&schema.partition, &schema.sort]).collect();
    names.sort();
    names.dedup();
    let is_text = |name: &&String| start.get(*name).is_some_and(|value| value.kind() == AttributeType::S);
    start.len() == names.len() && names.iter().all(is_text)
}
