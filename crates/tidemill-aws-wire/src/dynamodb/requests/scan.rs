//! Scan: all items of a table or an index.

use super::members::{Members, body};
use super::query::start_key;
use super::read_options::{
    ReturnConsumedCapacity, Select, consumed_capacity, select, selected, start_key_fits,
};
use crate::dynamodb::error::DynamoDbError;
use crate::dynamodb::expression::{ExpressionKind, ItemCondition, ItemProjection};
use crate::dynamodb::key_schema::KeySchema;
use crate::dynamodb::value::Item;

/// How many segments a scan may have.
pub const SEGMENTS_MAX: u32 = 1_000_000;

/// A scan, read and checked as far as it can be without the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScanRequest {
    pub table_name: String,
    pub index_name: Option<String>,
    pub filter: Option<ItemCondition>,
    pub projection: Option<ItemProjection>,
    pub select: Select,
    pub limit: Option<u32>,
    pub is_consistent: bool,
    /// The part of the items that is wanted, and how many parts there are.
    pub segment: Option<(u32, u32)>,
    pub start_key: Option<Item>,
    pub consumed_capacity: ReturnConsumedCapacity,
}

impl ScanRequest {
    pub fn parse(bytes: &[u8]) -> Result<Self, DynamoDbError> {
        let fields = body(bytes)?;
        let mut members = Members::new(&fields);
        let table_name = members.table_name()?;
        let index_name = members.index_name()?;
        let limit = members.count("Limit", 1)?;
        let segment = members.count("Segment", 0)?;
        let segments = members.count("TotalSegments", 1)?;
        if segments.is_some_and(|segments| segments > SEGMENTS_MAX) {
            let found = segments.map(|segments| segments.to_string());
            let rule = "Member must have value less than or equal to 1000000";
            members.breaks("TotalSegments", found.as_deref(), rule);
        }
        let chosen = select(&mut members)?;
        let consumed_capacity = consumed_capacity(&mut members)?;
        let is_consistent = members.flag("ConsistentRead")?.unwrap_or(false);
        members.checked()?;
        members.refuses_legacy(&[
            ("ScanFilter", "FilterExpression"),
            ("AttributesToGet", "ProjectionExpression"),
            ("ConditionalOperator", "FilterExpression"),
        ])?;
        let mut placeholders = members.placeholders(&[ExpressionKind::Filter, ExpressionKind::Projection])?;
        let start_key = start_key(&members)?;
        let filter = members.condition(ExpressionKind::Filter, &mut placeholders)?;
        let projection = members.projection(&mut placeholders)?;
        placeholders.all_used()?;
        let select = selected(chosen, projection.is_some(), index_name.is_some())?;
        let segment = part(segment, segments)?;
        Ok(Self {
            table_name,
            index_name,
            filter,
            projection,
            select,
            limit,
            is_consistent,
            segment,
            start_key,
            consumed_capacity,
        })
    }

    /// Checks what depends on the keys of the table, or of the index that the scan names.
    pub fn check(&self, table: &KeySchema, index: Option<&KeySchema>) -> Result<(), DynamoDbError> {
        if index.is_some() && self.is_consistent {
            let message = "Consistent reads are not supported on global secondary indexes";
            return Err(DynamoDbError::validation(message));
        }
        if self.start_key.as_ref().is_some_and(|start| !start_key_fits(start, table, index)) {
            return Err(DynamoDbError::validation("The provided starting key is invalid"));
        }
        Ok(())
    }
}

fn part(segment: Option<u32>, segments: Option<u32>) -> Result<Option<(u32, u32)>, DynamoDbError> {
    match (segment, segments) {
        (None, None) => Ok(None),
        (Some(_), None) => Err(DynamoDbError::validation(
            "The TotalSegments parameter is required but was not present in the request when Segment parameter is present",
        )),
        (None, Some(_)) => Err(DynamoDbError::validation(
            "The Segment parameter is required but was not present in the request when parameter TotalSegments is present",
        )),
        (Some(segment), Some(segments)) if segment >= segments => Err(DynamoDbError::Validation(format!(
            "The Segment parameter is zero-based and must be less than parameter TotalSegments: Segment: {segment} \
             is not less than TotalSegments: {segments}"
        ))),
        (Some(segment), Some(segments)) => Ok(Some((segment, segments))),
    }
}
