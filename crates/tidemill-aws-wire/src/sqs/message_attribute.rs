//! Attributes of messages: typed values beside the body, with the rules that SQS has for their names, types and values.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::fault::SqsFault;
use super::members::Members;
use super::message::is_allowed_character;

/// The attributes that one message may have.
pub const ATTRIBUTES_MAX: usize = 10;
/// The characters of a name, and of a type.
const NAME_CHARS_MAX: usize = 256;
/// The digits of a number that AWS keeps.
const NUMBER_DIGITS_MAX: usize = 38;

/// Attributes by their names, in the order in which their MD5 sum takes them.
pub type MessageAttributes = BTreeMap<String, MessageAttribute>;

/// One attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MessageAttribute {
    /// `String`, `Number` or `Binary`, perhaps with a suffix behind a dot that means something to the sender.
    pub data_type: String,
    pub content: AttributeContent,
}

/// What an attribute holds. Numbers are texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttributeContent {
    Text(String),
    Binary(Vec<u8>),
}

impl AttributeContent {
    pub fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }
}

impl MessageAttribute {
    /// An attribute of type `String`.
    pub fn text(text: impl Into<String>) -> Self {
        Self { data_type: "String".to_owned(), content: AttributeContent::Text(text.into()) }
    }

    fn read(name: &str, members: Members<'_>) -> Result<Self, SqsFault> {
        let data_type = members.text("DataType")?.unwrap_or_default();
        let kind = data_type.split_once('.').map_or(data_type, |(kind, _)| kind);
        if data_type.chars().count() > NAME_CHARS_MAX || !data_type.chars().all(is_allowed_character) {
            return Err(refused(name, "has a type that is too long or has invalid characters"));
        }
        let text = members.text("StringValue")?.filter(|text| !text.is_empty());
        let binary = members.text("BinaryValue")?.filter(|text| !text.is_empty());
        let content = match (kind, text, binary) {
            ("String" | "Number", Some(text), None) if !text.chars().all(is_allowed_character) => {
                return Err(refused(name, "has a value with invalid characters"));
            }
            ("Number", Some(text), None) if !is_number(text) => {
                return Err(refused(
                    name,
                    &format!("has the type Number and the value '{text}', which is no number"),
                ));
            }
            ("String" | "Number", Some(text), None) => AttributeContent::Text(text.to_owned()),
            ("Binary", None, Some(encoded)) => {
                let bytes =
                    STANDARD.decode(encoded).map_err(|_| refused(name, "has a value that is no base64"))?;
                AttributeContent::Binary(bytes)
            }
            ("String" | "Number" | "Binary", ..) => {
                return Err(refused(
                    name,
                    &format!("must contain one non-empty value of its type '{data_type}'"),
                ));
            }
            ("", ..) => return Err(refused(name, "must contain a non-empty message attribute type")),
            _ => {
                let problem = format!(
                    "has an invalid message attribute type '{data_type}', the set of supported type prefixes is Binary, Number, and String"
                );
                return Err(refused(name, &problem));
            }
        };
        Ok(Self { data_type: data_type.to_owned(), content })
    }
}

/// Reads the attributes that the sender gave.
pub(super) fn read_attributes(members: Members<'_>) -> Result<MessageAttributes, SqsFault> {
    let named = members.named_objects("MessageAttributes")?;
    if named.len() > ATTRIBUTES_MAX {
        return Err(SqsFault::invalid(format!(
            "Number of message attributes [{}] exceeds the allowed maximum [{ATTRIBUTES_MAX}].",
            named.len()
        )));
    }
    let read = |(name, members)| {
        check_name(name)?;
        Ok((name.to_owned(), MessageAttribute::read(name, members)?))
    };
    named.into_iter().map(read).collect()
}

/// Reads the attributes that tracing adds: AWS knows one of them.
pub(super) fn read_system_attributes(members: Members<'_>) -> Result<MessageAttributes, SqsFault> {
    let read = |(name, members)| {
        let attribute = MessageAttribute::read(name, members)?;
        if name != "AWSTraceHeader" || attribute.data_type != "String" {
            return Err(SqsFault::invalid(format!("Message system attribute name '{name}' is invalid.")));
        }
        Ok((name.to_owned(), attribute))
    };
    members.named_objects("MessageSystemAttributes")?.into_iter().map(read).collect()
}

fn check_name(name: &str) -> Result<(), SqsFault> {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    let lower = name.to_ascii_lowercase();
    let reserved = lower.starts_with("aws.") || lower.starts_with("amazon.");
    let dotted = name.starts_with('.') || name.ends_with('.') || name.contains("..");
    if name.is_empty() || name.len() > NAME_CHARS_MAX || reserved || dotted || !name.bytes().all(allowed) {
        return Err(SqsFault::invalid(format!(
            "Message (user) attribute name '{name}' is invalid: it has 1 to {NAME_CHARS_MAX} of A-Z, a-z, 0-9, '_', '-' and '.', no dot at \
             its ends or beside another, and does not begin with AWS. or Amazon."
        )));
    }
    Ok(())
}

/// `-12.5e3`: at most 38 digits, as DynamoDB has them too.
fn is_number(text: &str) -> bool {
    let unsigned = |text: &str| text.strip_prefix(['+', '-']).unwrap_or(text).to_owned();
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (mantissa, exponent) = text.split_once(['e', 'E']).map_or((text, None), |(m, e)| (m, Some(e)));
    let mantissa = unsigned(mantissa);
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((&mantissa, ""));
    let digits = whole.len() + fraction.len();
    let exponent = exponent.is_none_or(|exponent| {
        let exponent = unsigned(exponent);
        (1..=3).contains(&exponent.len()) && all_digits(&exponent)
    });
    (1..=NUMBER_DIGITS_MAX).contains(&digits) && all_digits(whole) && all_digits(fraction) && exponent
}

fn refused(name: &str, problem: &str) -> SqsFault {
    SqsFault::invalid(format!("The message attribute '{name}' {problem}."))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::dialect::SqsProtocol;

    fn read(attributes: &Value) -> Result<MessageAttributes, SqsFault> {
        let request = json!({"MessageAttributes": attributes});
        read_attributes(Members::of(request.as_object().unwrap(), SqsProtocol::Json))
    }

    #[test]
    fn names_types_and_values_have_rules() {
        let long = "n".repeat(NAME_CHARS_MAX);
        let too_long = "n".repeat(NAME_CHARS_MAX + 1);
        let text = json!({"DataType": "String", "StringValue": "v"});
        for (name, value, accepted) in [
            ("requestId", text.clone(), true),
            ("a.b-c_9", text.clone(), true),
            (long.as_str(), text.clone(), true),
            (too_long.as_str(), text.clone(), false),
            ("", text.clone(), false),
            (".a", text.clone(), false),
            ("a.", text.clone(), false),
            ("a..b", text.clone(), false),
            ("é", text.clone(), false),
            ("aws.x", text.clone(), false),
            ("Amazon.x", text.clone(), false),
            ("awsx", text.clone(), true),
            ("n", json!({"DataType": "String.uuid", "StringValue": "v"}), true),
            ("n", json!({"DataType": "Text", "StringValue": "v"}), false),
            ("n", json!({"StringValue": "v"}), false),
            ("n", json!({"DataType": "String"}), false),
            ("n", json!({"DataType": "String", "StringValue": ""}), false),
            ("n", json!({"DataType": "String", "StringValue": "\u{1}"}), false),
            ("n", json!({"DataType": "String", "BinaryValue": "AAA="}), false),
            ("n", json!({"DataType": "Number", "StringValue": "-1.5e3"}), true),
            ("n", json!({"DataType": "Number.int", "StringValue": "7"}), true),
            ("n", json!({"DataType": "Number", "StringValue": "seven"}), false),
            ("n", json!({"DataType": "Number", "StringValue": "."}), false),
            ("n", json!({"DataType": "Number", "StringValue": "1".repeat(39)}), false),
            ("n", json!({"DataType": "Binary", "BinaryValue": "AAE="}), true),
            ("n", json!({"DataType": "Binary", "BinaryValue": "A"}), false),
            ("n", json!({"DataType": "Binary", "StringValue": "AAE="}), false),
            ("n", json!({"DataType": 1}), false),
            ("n", json!("v"), false),
        ] {
            let attributes = json!({name: value});
            assert_eq!(read(&attributes).is_ok(), accepted, "{attributes}");
        }
    }

    #[test]
    fn a_message_has_at_most_ten_attributes() {
        let of = |count: usize| {
            (0..count)
                .map(|at| (format!("n{at}"), json!({"DataType": "String", "StringValue": "v"})))
                .collect()
        };
        assert!(read(&Value::Object(of(ATTRIBUTES_MAX))).is_ok());
        assert!(read(&Value::Object(of(ATTRIBUTES_MAX + 1))).is_err());
    }
}
