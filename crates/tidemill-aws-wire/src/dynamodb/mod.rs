//! Items of tables, expressions over them, and the requests and answers that carry both.
//!
//! The rules are DynamoDB's, as far as they can be kept without a table: what is refused here is refused with AWS's words.
//! Where the items come from, and who may see them, is the caller's business.

mod error;
pub mod expression;
mod key_schema;
mod number;
mod plain_json;
pub mod requests;
pub mod responses;
mod value;
mod value_json;

pub use error::DynamoDbError;
pub use key_schema::{KeyError, KeySchema, PARTITION_KEY_BYTES_MAX, SORT_KEY_BYTES_MAX};
pub use number::{DecimalNumber, NUMBER_DIGITS_MAX, NUMBER_MAGNITUDE_MAX, NUMBER_MAGNITUDE_MIN, NumberError};
pub use plain_json::{PlainError, item_from_plain, item_to_plain};
pub use value::{AttributeType, AttributeValue, Item, NESTING_MAX, item_bytes};
pub use value_json::{ValueError, item_from_json, item_to_json};
