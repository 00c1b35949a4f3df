//! The MD5 sums that SQS gives for bodies and attributes, by which clients check that nothing was changed on the way.

use md5::{Digest, Md5};

use super::message_attribute::{AttributeContent, MessageAttributes};
use crate::hex;

/// The sum of a body, in hexadecimal.
pub fn md5_of_body(body: &str) -> String {
    hex::encode(Md5::digest(body.as_bytes()).as_slice())
}

/// The sum of attributes, or none if there are none: name, type, kind of value and value of each, by name, every part behind
/// its length.
pub fn md5_of_attributes(attributes: &MessageAttributes) -> Option<String> {
    if attributes.is_empty() {
        return None;
    }
    let mut sum = Md5::new();
    let mut part = |bytes: &[u8], kind: Option<u8>| {
        sum.update(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
        sum.update(bytes);
        sum.update(kind.as_slice());
    };
    for (name, attribute) in attributes {
        let kind = match attribute.content {
            AttributeContent::Text(_) => 1,
            AttributeContent::Binary(_) => 2,
        };
        part(name.as_bytes(), None);
        part(attribute.data_type.as_bytes(), Some(kind));
        part(attribute.content.as_bytes(), None);
    }
    Some(hex::encode(sum.finalize().as_slice()))
}
