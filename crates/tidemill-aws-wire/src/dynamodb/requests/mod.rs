//! Requests: what the body of each operation says, read and checked before anybody looks at a table.
//!
//! What AWS refuses without the table is refused here; what needs the names of the keys is asked with them. Members that
//! nobody knows are passed over, as AWS does.

mod get_item;
mod members;
mod put_item;
mod query;
mod read_options;
mod scan;
mod tables;

pub use get_item::{BATCH_GET_MAX, BatchGetItemRequest, GetItemRequest, TableKeys};
pub use put_item::{BATCH_WRITE_MAX, BatchWriteItemRequest, PutItemRequest, WriteRequest};
pub use query::QueryRequest;
pub use read_options::{ReturnConsumedCapacity, Select};
pub use scan::{SEGMENTS_MAX, ScanRequest};
pub use tables::{DescribeTableRequest, LIST_TABLES_MAX, ListTablesRequest};
