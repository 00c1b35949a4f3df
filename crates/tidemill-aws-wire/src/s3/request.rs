//! The requests of S3.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::byte_range::ByteRange;
use super::conditions::ObjectConditions;
use super::endpoint::{S3Address, S3Endpoint};
use super::fault::{S3Fault, S3FaultCode};
use super::listing::ListObjects;
use super::upload::PART_NUMBER_MAX;
use crate::RequestHead;
use crate::form::read_form;

/// The bytes of an object.
pub const OBJECT_BYTES_MAX: u64 = 64 * 1_024 * 1_024;

/// The bytes of a chunked body. S3 wants chunks of 8 KiB at least, so their frames are far smaller than this leaves room for.
pub const CHUNKED_BYTES_MAX: u64 = OBJECT_BYTES_MAX + OBJECT_BYTES_MAX / 8 + 64 * 1_024;

/// Headers that would make a write mean something else.
const FOREIGN_HEADERS: [&str; 6] = [
    "x-amz-copy-source",
    "x-amz-tagging",
    "x-amz-object-lock-mode",
    "x-amz-server-side-encryption-customer-algorithm",
    "x-amz-write-offset-bytes",
    "x-amz-website-redirect-location",
];

/// An operation on a bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Request {
    pub bucket: String,
    pub operation: S3Operation,
}

/// What is served of S3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum S3Operation {
    PutObject {
        key: String,
        object: NewObject,
        content_md5: Option<[u8; 16]>,
        conditions: ObjectConditions,
    },
    GetObject {
        key: String,
        range: Option<ByteRange>,
        conditions: ObjectConditions,
    },
    HeadObject {
        key: String,
        range: Option<ByteRange>,
        conditions: ObjectConditions,
    },
    ListObjects(ListObjects),
    HeadBucket,
    GetBucketLocation,
    CreateMultipartUpload {
        key: String,
        object: NewObject,
    },
    UploadPart {
        key: String,
        upload_id: String,
        part_number: u32,
        content_md5: Option<[u8; 16]>,
    },
    /// Its parts are in the body: [`super::read_uploaded_parts`].
    CompleteMultipartUpload {
        key: String,
        upload_id: String,
        conditions: ObjectConditions,
    },
    AbortMultipartUpload {
        key: String,
        upload_id: String,
    },
}

/// What a client says of an object that it brings.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewObject {
    pub content_type: Option<String>,
    /// From headers `x-amz-meta-…`, by the rest of their names in small letters.
    pub metadata: BTreeMap<String, String>,
}

impl S3Request {
    /// Reads the head of a request; the body is not needed.
    pub fn read(head: &RequestHead<'_>, endpoint: S3Endpoint<'_>) -> Result<Self, S3Fault> {
        let S3Address { bucket, key } = S3Address::read(head, endpoint)?;
        let parameters = Parameters::read(head)?;
        let operation = match key {
            Some(key) => object_operation(head, &parameters, key)?,
            None => bucket_operation(head, &parameters)?,
        };
        Ok(Self { bucket, operation })
    }
}

/// The query without what signatures and SDKs add for themselves.
struct Parameters(Vec<(String, String)>);

impl Parameters {
    fn read(head: &RequestHead<'_>) -> Result<Self, S3Fault> {
        let unreadable = |_| S3Fault::new(S3FaultCode::InvalidUri, "Couldn't parse the specified URI.");
        let mut pairs = read_form(head.query.as_bytes()).map_err(unreadable)?;
        pairs.retain(|(name, _)| name != "x-id" && !name.to_ascii_lowercase().starts_with("x-amz-"));
        Ok(Self(pairs))
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Refuses what is not in `known`: an unknown sub-resource would be taken for the object itself.
    fn only(&self, known: &[&str]) -> Result<(), S3Fault> {
        match self.0.iter().find(|(name, _)| !known.contains(&name.as_str())) {
            None => Ok(()),
            Some((name, _)) => Err(S3Fault::not_implemented(&format!("The parameter {name}"))),
        }
    }

    fn upload_id(&self) -> Option<String> {
        self.value("uploadId").map(str::to_owned)
    }
}

fn bucket_operation(head: &RequestHead<'_>, parameters: &Parameters) -> Result<S3Operation, S3Fault> {
    match head.method {
        "HEAD" => {
            parameters.only(&[])?;
            Ok(S3Operation::HeadBucket)
        }
        "GET" if parameters.value("location").is_some() => {
            parameters.only(&["location"])?;
            Ok(S3Operation::GetBucketLocation)
        }
        "GET" if parameters.value("list-type") == Some("2") => {
            parameters.only(&[
                "list-type",
                "prefix",
                "delimiter",
                "max-keys",
                "continuation-token",
                "start-after",
                "encoding-type",
                "fetch-owner",
            ])?;
            ListObjects::read(&parameters.0).map(S3Operation::ListObjects)
        }
        method => Err(S3Fault::not_implemented(&format!("This {method} of a bucket"))),
    }
}

fn object_operation(
    head: &RequestHead<'_>,
    parameters: &Parameters,
    key: String,
) -> Result<S3Operation, S3Fault> {
    let range = || head.header("range").and_then(ByteRange::read);
    match (head.method, parameters.upload_id()) {
        ("GET", None) => {
            parameters.only(&[])?;
            Ok(S3Operation::GetObject { key, range: range(), conditions: ObjectConditions::read(head)? })
        }
        ("HEAD", None) => {
            parameters.only(&[])?;
            Ok(S3Operation::HeadObject { key, range: range(), conditions: ObjectConditions::read(head)? })
        }
        ("PUT", None) => {
            parameters.only(&[])?;
            check_write(head)?;
            Ok(S3Operation::PutObject {
                key,
                object: NewObject::read(head),
                content_md5: content_md5(head)?,
                conditions: ObjectConditions::read(head)?,
            })
        }
        ("PUT", Some(upload_id)) => {
            parameters.only(&["uploadId", "partNumber"])?;
            check_write(head)?;
            let part_number = parameters.value("partNumber").and_then(|text| text.parse().ok());
            let part_number = part_number.filter(|number| (1..=PART_NUMBER_MAX).contains(number));
            let part_number = part_number.ok_or_else(|| {
                let message =
                    format!("Part number must be an integer between 1 and {PART_NUMBER_MAX}, inclusive");
                S3Fault::new(S3FaultCode::InvalidArgument, message)
            })?;
            Ok(S3Operation::UploadPart { key, upload_id, part_number, content_md5: content_md5(head)? })
        }
        ("POST", None) if parameters.value("uploads").is_some() => {
            parameters.only(&["uploads"])?;
            check_write(head)?;
            Ok(S3Operation::CreateMultipartUpload { key, object: NewObject::read(head) })
        }
        ("POST", Some(upload_id)) => {
            parameters.only(&["uploadId"])?;
            let conditions = ObjectConditions::read(head)?;
            Ok(S3Operation::CompleteMultipartUpload { key, upload_id, conditions })
        }
        ("DELETE", Some(upload_id)) => {
            parameters.only(&["uploadId"])?;
            Ok(S3Operation::AbortMultipartUpload { key, upload_id })
        }
        (method, _) => Err(S3Fault::not_implemented(&format!("This {method} of an object"))),
    }
}

impl NewObject {
    fn read(head: &RequestHead<'_>) -> Self {
        let metadata = head.headers.iter().filter_map(|(name, value)| {
            let name = name.to_ascii_lowercase();
            Some((name.strip_prefix("x-amz-meta-")?.to_owned(), value.trim().to_owned()))
        });
        Self { content_type: head.header("content-type").map(str::to_owned), metadata: metadata.collect() }
    }
}

fn check_write(head: &RequestHead<'_>) -> Result<(), S3Fault> {
    if let Some(name) = FOREIGN_HEADERS.iter().find(|name| head.header(name).is_some()) {
        return Err(S3Fault::not_implemented(&format!("The header {name}")));
    }
    let sent = length(head, "content-length")?;
    // Of a chunked body the length of the object is told apart from that of the body. Of others it says nothing.
    let decoded = length(head, "x-amz-decoded-content-length")?;
    let is_chunked =
        head.header("x-amz-content-sha256").is_some_and(|payload| payload.starts_with("STREAMING-"));
    let sent_max = if is_chunked { CHUNKED_BYTES_MAX } else { OBJECT_BYTES_MAX };
    if sent.is_some_and(|length| length > sent_max) || decoded.is_some_and(|length| length > OBJECT_BYTES_MAX)
    {
        return Err(S3Fault::new(
            S3FaultCode::EntityTooLarge,
            format!("Your proposed upload exceeds the maximum allowed size of {OBJECT_BYTES_MAX} bytes."),
        ));
    }
    Ok(())
}

fn length(head: &RequestHead<'_>, name: &str) -> Result<Option<u64>, S3Fault> {
    let Some(text) = head.header(name) else { return Ok(None) };
    let no_length = |_| S3Fault::new(S3FaultCode::InvalidArgument, format!("{name} is not a length."));
    text.parse().map(Some).map_err(no_length)
}

fn content_md5(head: &RequestHead<'_>) -> Result<Option<[u8; 16]>, S3Fault> {
    let Some(text) = head.header("content-md5") else { return Ok(None) };
    let bytes = STANDARD.decode(text).ok().and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    let invalid = || S3Fault::new(S3FaultCode::InvalidDigest, "The Content-MD5 you specified is not valid.");
    bytes.map(Some).ok_or_else(invalid)
}
