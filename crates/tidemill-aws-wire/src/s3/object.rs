//! Answers about single objects and about the bucket.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::hex;
use crate::wire_answer::{APPLICATION_XML, WireAnswer};
use crate::wire_date::http_date;
use crate::xml::XmlWriter;

/// The namespace of answers of S3.
pub(super) const S3_NAMESPACE: &str = "http://s3.amazonaws.com/doc/2006-03-01/";

/// What is known of an object beside its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectHead {
    /// With its quotes.
    pub etag: String,
    pub size_bytes: u64,
    pub modified_millis: i64,
    pub content_type: Option<String>,
    pub metadata: BTreeMap<String, String>,
}

/// The `ETag` of an object with this MD5 sum, in quotes.
pub fn etag_of(md5: [u8; 16]) -> String {
    format!("\"{}\"", hex::encode(&md5))
}

/// The answer to `GetObject` and `HeadObject` without the bytes, of the whole object or of a part of it.
pub fn object_head(object: &ObjectHead, range: Option<&Range<u64>>) -> WireAnswer {
    let (status, length) = range.map_or((200, object.size_bytes), |range| (206, range.end - range.start));
    let content_type = object.content_type.as_deref().unwrap_or("binary/octet-stream");
    let mut answer = WireAnswer::empty(status)
        .with_header("content-type", content_type)
        .with_header("content-length", length.to_string())
        .with_header("etag", &object.etag)
        .with_header("last-modified", http_date(object.modified_millis))
        .with_header("accept-ranges", "bytes");
    if let Some(range) = range {
        let shown = format!("bytes {}-{}/{}", range.start, range.end.saturating_sub(1), object.size_bytes);
        answer = answer.with_header("content-range", shown);
    }
    object
        .metadata
        .iter()
        .fold(answer, |answer, (name, value)| answer.with_header(format!("x-amz-meta-{name}"), value))
}

/// The answer to `PutObject` and `UploadPart`.
pub fn object_put(etag: &str) -> WireAnswer {
    WireAnswer::empty(200).with_header("etag", etag)
}

/// The answer to `HeadBucket`.
pub fn bucket_head(region: &str) -> WireAnswer {
    WireAnswer::empty(200).with_header("x-amz-bucket-region", region)
}

/// The answer to `GetBucketLocation`. The first region of AWS is written as nothing.
pub fn bucket_location(region: &str) -> WireAnswer {
    let region = if region == "us-east-1" { "" } else { region };
    let body = XmlWriter::root_text("LocationConstraint", S3_NAMESPACE, region);
    WireAnswer::xml(200, APPLICATION_XML, body)
}
