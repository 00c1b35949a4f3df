//! Query: the items of one partition.

use super::members::{Members, body};
use super::read_options::{
    ReturnConsumedCapacity, Select, consumed_capacity, select, selected, start_key_fits,
};
use crate::dynamodb::error::DynamoDbError;
use crate::dynamodb::expression::{ExpressionKind, ItemCondition, ItemProjection, KeyCondition};
use crate::dynamodb::key_schema::KeySchema;
use crate::dynamodb::value::Item;

/// A query, read and checked as far as it can be without the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryRequest {
    pub table_name: String,
    pub index_name: Option<String>,
    key_condition: ItemCondition,
    pub filter: Option<ItemCondition>,
    pub projection: Option<ItemProjection>,
    pub select: Select,
    /// How many items are looked at, before the filter.
    pub limit: Option<u32>,
    pub is_forward: bool,
    pub is_consistent: bool,
    pub start_key: Option<Item>,
    pub consumed_capacity: ReturnConsumedCapacity,
}

impl QueryRequest {
    pub fn parse(bytes: &[u8]) -> Result<Self, DynamoDbError> {
        let fields = body(bytes)?;
        let mut members = Members::new(&fields);
        let table_name = members.table_name()?;
        let index_name = members.index_name()?;
        let limit = members.count("Limit", 1)?;
        let chosen = select(&mut members)?;
        let consumed_capacity = consumed_capacity(&mut members)?;
        let is_forward = members.flag("ScanIndexForward")?.unwrap_or(true);
        let is_consistent = members.flag("ConsistentRead")?.unwrap_or(false);
        members.checked()?;
        members.refuses_legacy(&[
            ("KeyConditions", "KeyConditionExpression"),
            ("QueryFilter", "FilterExpression"),
            ("AttributesToGet", "ProjectionExpression"),
            ("ConditionalOperator", "FilterExpression"),
        ])?;
        let kinds = [ExpressionKind::Filter, ExpressionKind::KeyCondition, ExpressionKind::Projection];
        let mut placeholders = members.placeholders(&kinds)?;
        let start_key = start_key(&members)?;
        let key_condition = members.condition(ExpressionKind::KeyCondition, &mut placeholders)?;
        let filter = members.condition(ExpressionKind::Filter, &mut placeholders)?;
        let projection = members.projection(&mut placeholders)?;
        placeholders.all_used()?;
        let select = selected(chosen, projection.is_some(), index_name.is_some())?;
        let key_condition = key_condition.ok_or_else(|| {
            let message = "Either the KeyConditions or KeyConditionExpression parameter must be specified in the request.";
            DynamoDbError::validation(message)
        })?;
        Ok(Self {
            table_name,
            index_name,
            key_condition,
            filter,
            projection,
            select,
            limit,
            is_forward,
            is_consistent,
            start_key,
            consumed_capacity,
        })
    }

    /// What is asked of the keys of the table, or of the index that the query names.
    pub fn key_condition(
        &self,
        table: &KeySchema,
        index: Option<&KeySchema>,
    ) -> Result<KeyCondition, DynamoDbError> {
        if index.is_some() && self.is_consistent {
            let message = "Consistent reads are not supported on global secondary indexes";
            return Err(DynamoDbError::validation(message));
        }
        let schema = index.unwrap_or(table);
        if let Some(filter) = &self.filter
            && let Some(name) = [&schema.partition, &schema.sort].into_iter().find(|name| filter.names(name))
        {
            return Err(DynamoDbError::Validation(format!(
                "Filter Expression can only contain non-primary key attributes: Primary key attribute: {name}"
            )));
        }
        let condition = KeyCondition::of(&self.key_condition, schema)?;
        if self.start_key.as_ref().is_some_and(|start| !start_key_fits(start, table, index)) {
            return Err(DynamoDbError::validation("The provided starting key is invalid"));
        }
        Ok(condition)
    }
}

pub(super) fn start_key(members: &Members<'_>) -> Result<Option<Item>, DynamoDbError> {
    members.item("ExclusiveStartKey").map_err(|error| match error {
        DynamoDbError::Validation(message) => {
            DynamoDbError::Validation(format!("The provided starting key is invalid: {message}"))
        }
        other => other,
    })
}
