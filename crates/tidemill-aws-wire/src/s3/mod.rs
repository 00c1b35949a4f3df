//! Objects: requests of S3 read from method, path, query and headers, and answers in its XML.
//!
//! What is not listed in [`S3Operation`] is `NotImplemented`, and so is a parameter that would change what an operation means:
//! a client is never told that something was done which was not. Bodies of objects do not come through here.

mod byte_range;
mod conditions;
mod endpoint;
mod fault;
mod listing;
mod object;
mod request;
mod upload;

pub use byte_range::ByteRange;
pub use conditions::{ObjectConditions, ObjectVerdict};
pub use endpoint::{KEY_BYTES_MAX, S3Address, S3Endpoint};
pub use fault::{S3Fault, S3FaultCode};
pub use listing::{LIST_KEYS_MAX, ListObjects, ListedObject, ObjectPage};
pub use object::{ObjectHead, bucket_head, bucket_location, etag_of, object_head, object_put};
pub use request::{CHUNKED_BYTES_MAX, NewObject, OBJECT_BYTES_MAX, S3Operation, S3Request};
pub use upload::{
    PART_NUMBER_MAX, UploadedPart, etag_of_parts, read_uploaded_parts, upload_completed, upload_created,
};
