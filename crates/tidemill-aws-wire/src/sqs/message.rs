//! A message that somebody sends: its body and attributes are kept byte for byte.

use super::digest::{md5_of_attributes, md5_of_body};
use super::fault::{SqsFault, SqsFaultCode};
use super::members::Members;
use super::message_attribute::{MessageAttributes, read_attributes, read_system_attributes};

/// The bytes of a body and its attributes together.
pub const MESSAGE_BYTES_MAX: usize = 1_048_576;
/// For how long a message may be held back.
pub const DELAY_SECS_MAX: u32 = 900;

/// One message of `SendMessage` or of an entry of its batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutgoingMessage {
    pub body: String,
    /// The queue's own delay if it is not given.
    pub delay_secs: Option<u32>,
    pub attributes: MessageAttributes,
    /// What tracing adds; it does not count for the size.
    pub system_attributes: MessageAttributes,
}

impl OutgoingMessage {
    pub(super) fn read(members: Members<'_>) -> Result<Self, SqsFault> {
        let body = members.required_text("MessageBody")?;
        if !body.chars().all(is_allowed_character) {
            return Err(SqsFault::new(
                SqsFaultCode::InvalidMessageContents,
                "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
            ));
        }
        if members.text("MessageDeduplicationId")?.is_some() {
            return Err(SqsFault::invalid(
                "The request include parameter that is not valid for this queue type: MessageDeduplicationId.",
            ));
        }
        let message = Self {
            body: body.to_owned(),
            delay_secs: members.number("DelaySeconds", 0..=DELAY_SECS_MAX)?,
            attributes: read_attributes(members)?,
            system_attributes: read_system_attributes(members)?,
        };
        if message.size_bytes() > MESSAGE_BYTES_MAX {
            return Err(SqsFault::invalid(format!(
                "One or more parameters are invalid. Reason: Message must be shorter than {MESSAGE_BYTES_MAX} bytes."
            )));
        }
        Ok(message)
    }

    /// What counts for the limit: the body, and names, types and values of attributes.
    pub fn size_bytes(&self) -> usize {
        let attributes = self.attributes.iter().map(|(name, attribute)| {
            name.len() + attribute.data_type.len() + attribute.content.as_bytes().len()
        });
        self.body.len() + attributes.sum::<usize>()
    }

    pub fn md5_of_body(&self) -> String {
        md5_of_body(&self.body)
    }

    pub fn md5_of_attributes(&self) -> Option<String> {
        md5_of_attributes(&self.attributes)
    }
}

/// The characters of XML 1.0, the only ones that a message may have.
pub(super) fn is_allowed_character(character: char) -> bool {
    matches!(character, '\t' | '\n' | '\r' | ' '..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}
