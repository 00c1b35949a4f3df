//! `DescribeTable` and `ListTables`: which tables there are, and what they are like.

use super::members::{Members, body};
use crate::dynamodb::error::DynamoDbError;

/// How many tables a page may list.
pub const LIST_TABLES_MAX: u32 = 100;

/// A request for the description of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DescribeTableRequest {
    pub table_name: String,
}

/// A request for the names of tables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListTablesRequest {
    /// The last name of the page before.
    pub after: Option<String>,
    pub limit: u32,
}

impl DescribeTableRequest {
    pub fn parse(bytes: &[u8]) -> Result<Self, DynamoDbError> {
        let fields = body(bytes)?;
        let mut members = Members::new(&fields);
        let table_name = members.table_name()?;
        members.checked()?;
        Ok(Self { table_name })
    }
}

impl ListTablesRequest {
    pub fn parse(bytes: &[u8]) -> Result<Self, DynamoDbError> {
        let fields = body(bytes)?;
        let mut members = Members::new(&fields);
        let after = members.text("ExclusiveStartTableName")?;
        let after = after.map(|after| members.name("ExclusiveStartTableName", after));
        let limit = members.count("Limit", 1)?.unwrap_or(LIST_TABLES_MAX);
        if limit > LIST_TABLES_MAX {
            let rule = "Member must have value less than or equal to 100";
            members.breaks("Limit", Some(&limit.to_string()), rule);
        }
        members.checked()?;
        Ok(Self { after, limit })
    }
}
