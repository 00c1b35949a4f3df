//! A form of the query protocol in the shape that the same request has in JSON.
//!
//! `MessageAttribute.1.Name=a&MessageAttribute.1.Value.StringValue=b` becomes `{"MessageAttributes": {"a": {"StringValue": "b"}}}`.
//! Lists are flat and counted from one; gaps are skipped, and names that mean nothing are left out, as AWS does.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::fault::SqsFault;

/// The parts of the longest name, `SendMessageBatchRequestEntry.1.MessageAttribute.1.Value.StringValue`.
const NAME_PARTS_MAX: usize = 6;

/// What stands behind a counted name of a form.
#[derive(Clone, Copy)]
enum Shape {
    Texts,
    /// `.Name` or `.Key` and `.Value`, whose value is text.
    NamedTexts,
    /// `.Name` and `.Value.…`.
    NamedObjects,
    /// Members of their own, which may be lists again.
    Objects,
}

/// The names of lists in forms, their names in JSON, and what they hold.
const LISTS: [(&str, &str, Shape); 10] = [
    ("AttributeName", "AttributeNames", Shape::Texts),
    ("MessageSystemAttributeName", "MessageSystemAttributeNames", Shape::Texts),
    ("MessageAttributeName", "MessageAttributeNames", Shape::Texts),
    ("MessageAttribute", "MessageAttributes", Shape::NamedObjects),
    ("MessageSystemAttribute", "MessageSystemAttributes", Shape::NamedObjects),
    ("Attribute", "Attributes", Shape::NamedTexts),
    ("Tag", "tags", Shape::NamedTexts),
    ("SendMessageBatchRequestEntry", "Entries", Shape::Objects),
    ("DeleteMessageBatchRequestEntry", "Entries", Shape::Objects),
    ("ChangeMessageVisibilityBatchRequestEntry", "Entries", Shape::Objects),
];

/// The names of a form as a tree, split at their dots.
#[derive(Default)]
struct Node<'f> {
    text: Option<&'f str>,
    children: BTreeMap<&'f str, Node<'f>>,
}

/// The members of the request that `form` holds.
pub(super) fn form_members(form: &[(String, String)]) -> Result<Map<String, Value>, SqsFault> {
    let mut root = Node::default();
    for (name, value) in form {
        if name.split('.').count() > NAME_PARTS_MAX {
            continue;
        }
        let node = name.split('.').fold(&mut root, |node, part| node.children.entry(part).or_default());
        node.text = Some(value);
    }
    root.members()
}

impl Node<'_> {
    fn members(&self) -> Result<Map<String, Value>, SqsFault> {
        let mut members = Map::new();
        for (name, child) in &self.children {
            if let Some((_, json_name, shape)) = LISTS.iter().find(|(form_name, ..)| form_name == name) {
                members.insert((*json_name).to_owned(), child.list(name, *shape)?);
            } else if let Some(text) = child.text
                // botocore writes `Entries=` for a list without entries.
                && !LISTS.iter().any(|(_, json_name, _)| json_name == name)
            {
                members.insert((*name).to_owned(), text.into());
            }
        }
        Ok(members)
    }

    fn list(&self, name: &str, shape: Shape) -> Result<Value, SqsFault> {
        Ok(match shape {
            Shape::Texts => self.counted().filter_map(|node| node.text).collect(),
            Shape::Objects => {
                let objects = self.counted().map(|node| node.members().map(Value::Object));
                Value::Array(objects.collect::<Result<_, _>>()?)
            }
            Shape::NamedTexts => self.named(name, |value| value.text.unwrap_or_default().into())?,
            Shape::NamedObjects => self.named(name, Node::texts)?,
        })
    }

    /// The children with a number for a name, in the order of their numbers.
    fn counted(&self) -> impl Iterator<Item = &Self> {
        let numbered =
            self.children.iter().filter_map(|(name, child)| Some((name.parse::<u32>().ok()?, child)));
        numbered.collect::<BTreeMap<_, _>>().into_values()
    }

    /// A map from the names of counted children to what `content` makes of their values.
    fn named(&self, list: &str, content: impl Fn(&Self) -> Value) -> Result<Value, SqsFault> {
        let mut named = Map::new();
        for child in self.counted() {
            let name = child.children.get("Name").or_else(|| child.children.get("Key"));
            let name = name.and_then(|node| node.text).unwrap_or_default();
            let value = child.children.get("Value").map_or_else(|| content(&Node::default()), &content);
            if named.insert(name.to_owned(), value).is_some() {
                return Err(SqsFault::invalid(format!("{list} name '{name}' already exists.")));
            }
        }
        Ok(Value::Object(named))
    }

    /// The children that hold text.
    fn texts(&self) -> Value {
        let texts =
            self.children.iter().filter_map(|(name, child)| Some(((*name).to_owned(), child.text?.into())));
        Value::Object(texts.collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::form::read_form;

    #[test]
    fn forms_have_the_shape_of_json() {
        for (form, expected) in [
            ("QueueUrl=q&DelaySeconds=5", json!({"QueueUrl": "q", "DelaySeconds": "5"})),
            (
                "AttributeName.2=b&AttributeName.10=c&AttributeName.1=a",
                json!({"AttributeNames": ["a", "b", "c"]}),
            ),
            (
                "MessageAttribute.1.Name=n&MessageAttribute.1.Value.StringValue=v&MessageAttribute.1.Value.DataType=String",
                json!({"MessageAttributes": {"n": {"StringValue": "v", "DataType": "String"}}}),
            ),
            (
                "SendMessageBatchRequestEntry.1.Id=a&SendMessageBatchRequestEntry.1.MessageAttribute.1.Name=n",
                json!({"Entries": [{"Id": "a", "MessageAttributes": {"n": {}}}]}),
            ),
            ("Attribute.1.Name=n&Attribute.1.Value=v", json!({"Attributes": {"n": "v"}})),
            ("Tag.1.Key=n&Tag.1.Value=v", json!({"tags": {"n": "v"}})),
            ("AttributeName.x=1&AttributeName=2&a.b.c.d.e.f.g=1", json!({"AttributeNames": []})),
        ] {
            let members = form_members(&read_form(form.as_bytes()).unwrap()).unwrap();
            assert_eq!(Value::Object(members), expected, "{form}");
        }
    }

    #[test]
    fn a_name_that_comes_twice_is_refused() {
        let form = read_form(b"MessageAttribute.1.Name=n&MessageAttribute.2.Name=n").unwrap();
        assert!(form_members(&form).is_err());
    }
}
