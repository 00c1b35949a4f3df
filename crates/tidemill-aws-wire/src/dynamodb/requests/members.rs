//! The members of a request's body. A member that is null counts as absent, and one that nobody knows is passed over.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::dynamodb::error::DynamoDbError;
use crate::dynamodb::expression::{
    ExpressionError, ExpressionKind, ItemCondition, ItemProjection, Placeholders,
};
use crate::dynamodb::value::{AttributeValue, Item};
use crate::dynamodb::value_json::{item_from_json, wrong_scalar};

/// The shortest and the longest name of a table or an index.
const NAME_LENGTHS: std::ops::RangeInclusive<usize> = 3..=255;

/// An object of a body, and the rules that its members broke so far.
pub(super) struct Members<'b> {
    fields: &'b Map<String, Value>,
    broken: Vec<String>,
}

/// Reads a body. It is an object, or it is nothing that AWS reads.
pub(super) fn body(bytes: &[u8]) -> Result<Map<String, Value>, DynamoDbError> {
    match serde_json::from_slice(bytes) {
        Ok(Value::Object(fields)) => Ok(fields),
        // AWS has no words for it: its answer has none.
        _ => Err(DynamoDbError::Serialization(String::new())),
    }
}

impl<'b> Members<'b> {
    pub(super) fn new(fields: &'b Map<String, Value>) -> Self {
        Self { fields, broken: Vec::new() }
    }

    pub(super) fn of(json: &'b Value) -> Result<Self, DynamoDbError> {
        json.as_object().map(Self::new).ok_or_else(|| wrong_scalar(json, "Structure").into())
    }

    pub(super) fn get(&self, name: &str) -> Option<&'b Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&'b str>, DynamoDbError> {
        let Some(json) = self.get(name) else { return Ok(None) };
        json.as_str().map(Some).ok_or_else(|| wrong_scalar(json, "String").into())
    }

    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, DynamoDbError> {
        let Some(json) = self.get(name) else { return Ok(None) };
        json.as_bool().map(Some).ok_or_else(|| wrong_scalar(json, "Boolean").into())
    }

    pub(super) fn object(&self, name: &str) -> Result<Option<&'b Map<String, Value>>, DynamoDbError> {
        let Some(json) = self.get(name) else { return Ok(None) };
        json.as_object().map(Some).ok_or_else(|| wrong_scalar(json, "Map").into())
    }

    pub(super) fn item(&self, name: &str) -> Result<Option<Item>, DynamoDbError> {
        Ok(self.get(name).map(item_from_json).transpose()?)
    }

    /// A whole number of at least `least`.
    pub(super) fn count(&mut self, name: &str, least: u32) -> Result<Option<u32>, DynamoDbError> {
        let Some(json) = self.get(name) else { return Ok(None) };
        let Some(number) = json.as_i64() else { return Err(wrong_scalar(json, "Integer").into()) };
        if number < i64::from(least) {
            let rule = format!("Member must have value greater than or equal to {least}");
            self.breaks(name, Some(&number.to_string()), &rule);
        }
        // What AWS takes for a number of 32 bits is limited by the page long before.
        Ok(Some(u32::try_from(number).unwrap_or(u32::MAX)))
    }

    /// One of the words that a member may be.
    pub(super) fn word<T: Copy>(
        &mut self,
        name: &str,
        words: &[(&str, T)],
    ) -> Result<Option<T>, DynamoDbError> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let found = words.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning);
        if found.is_none() {
            let all = words.iter().map(|(word, _)| *word).collect::<Vec<_>>().join(", ");
            self.breaks(name, Some(text), &format!("Member must satisfy enum value set: [{all}]"));
        }
        Ok(found)
    }

    /// The name of the table; of an ARN the part that names it.
    pub(super) fn table_name(&mut self) -> Result<String, DynamoDbError> {
        let Some(text) = self.text("TableName")? else {
            self.breaks("TableName", None, "Member must not be null");
            return Ok(String::new());
        };
        Ok(self.name("TableName", text))
    }

    pub(super) fn index_name(&mut self) -> Result<Option<String>, DynamoDbError> {
        let text = self.text("IndexName")?;
        Ok(text.map(|text| self.name("IndexName", text)))
    }

    /// Checks a name of a table or an index.
    pub(super) fn name(&mut self, member: &str, text: &str) -> String {
        let is_arn = text.starts_with("arn:");
        let name = if is_arn { text.split_once(":table/").map_or(text, |(_, name)| name) } else { text };
        let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        if !name.bytes().all(is_letter) {
            let rule = "Member must satisfy regular expression pattern: [a-zA-Z0-9_.-]+";
            self.breaks(member, Some(text), rule);
        }
        if name.len() < *NAME_LENGTHS.start() {
            self.breaks(member, Some(text), "Member must have length greater than or equal to 3");
        }
        if name.len() > *NAME_LENGTHS.end() {
            self.breaks(member, Some(text), "Member must have length less than or equal to 255");
        }
        name.to_owned()
    }

    /// Notes a broken rule: AWS reports those of one request together.
    pub(super) fn breaks(&mut self, member: &str, value: Option<&str>, rule: &str) {
        let value = value.map_or_else(|| "null".to_owned(), |value| format!("'{value}'"));
        let mut place = member.to_owned();
        if let Some(first) = place.get_mut(..1) {
            first.make_ascii_lowercase();
        }
        self.broken.push(format!("Value {value} at '{place}' failed to satisfy constraint: {rule}"));
    }

    /// Fails if a member broke a rule.
    pub(super) fn checked(&mut self) -> Result<(), DynamoDbError> {
        let count = self.broken.len();
        if count == 0 {
            return Ok(());
        }
        let plural = if count == 1 { "" } else { "s" };
        let broken = self.broken.join("; ");
        Err(DynamoDbError::Validation(format!("{count} validation error{plural} detected: {broken}")))
    }

    /// Parameters from before there were expressions are not served.
    pub(super) fn refuses_legacy(&self, pairs: &[(&str, &str)]) -> Result<(), DynamoDbError> {
        let found = pairs.iter().find(|(legacy, _)| self.get(legacy).is_some());
        found.map_or(Ok(()), |(legacy, instead)| {
            let message = format!("The legacy parameter {legacy} is not supported; use {instead}");
            Err(DynamoDbError::Validation(message))
        })
    }

    /// The placeholders of the request, which may be there only if one of its expressions is.
    pub(super) fn placeholders(&self, kinds: &[ExpressionKind]) -> Result<Placeholders, DynamoDbError> {
        let is_given = |kind: &&ExpressionKind| self.get(kind.parameter()).is_some();
        let names = self.object("ExpressionAttributeNames")?;
        let values = self.object("ExpressionAttributeValues")?;
        if names.is_some() && !kinds.iter().any(|kind| is_given(&kind)) {
            let message = "ExpressionAttributeNames can only be specified when using expressions";
            return Err(DynamoDbError::validation(message));
        }
        let with_values: Vec<_> =
            kinds.iter().filter(|kind| **kind != ExpressionKind::Projection).copied().collect();
        if values.is_some() && !with_values.is_empty() && !with_values.iter().any(|kind| is_given(&kind)) {
            let all = with_values.iter().map(|kind| kind.parameter()).collect::<Vec<_>>().join(" and ");
            let verb = if with_values.len() > 1 { "are" } else { "is" };
            return Err(DynamoDbError::Validation(format!(
                "ExpressionAttributeValues can only be specified when using expressions: {all} {verb} null"
            )));
        }
        let name = |(key, name): (&String, &Value)| match name.as_str() {
            Some(name) => Ok((key.clone(), name.to_owned())),
            None => Err(DynamoDbError::from(wrong_scalar(name, "String"))),
        };
        let names = names.map(|names| names.iter().map(name).collect::<Result<BTreeMap<_, _>, _>>());
        let value = |(key, json): (&String, &Value)| match AttributeValue::from_json(json) {
            Ok(value) => Ok((key.clone(), value)),
            Err(error) if error.is_serialization() => Err(error.into()),
            Err(error) => Err(DynamoDbError::Validation(format!(
                "ExpressionAttributeValues contains invalid value: {error} for key {key}"
            ))),
        };
        let values = values.map(|values| values.iter().map(value).collect::<Result<BTreeMap<_, _>, _>>());
        Ok(Placeholders::new(names.transpose()?, values.transpose()?)?)
    }

    pub(super) fn condition(
        &self,
        kind: ExpressionKind,
        placeholders: &mut Placeholders,
    ) -> Result<Option<ItemCondition>, DynamoDbError> {
        let condition = self.expression(kind, |text| ItemCondition::parse(text, placeholders))?;
        Ok(match kind {
            // It is tried on no item, and what is wrong with it is said of what was written.
            ExpressionKind::KeyCondition => condition,
            _ => condition.map(ItemCondition::with_constants_judged),
        })
    }

    pub(super) fn projection(
        &self,
        placeholders: &mut Placeholders,
    ) -> Result<Option<ItemProjection>, DynamoDbError> {
        self.expression(ExpressionKind::Projection, |text| ItemProjection::parse(text, placeholders))
    }

    fn expression<T>(
        &self,
        kind: ExpressionKind,
        parse: impl FnOnce(&str) -> Result<T, ExpressionError>,
    ) -> Result<Option<T>, DynamoDbError> {
        let text = self.text(kind.parameter())?;
        text.map(parse).transpose().map_err(|error| DynamoDbError::expression(kind, &error))
    }
}
