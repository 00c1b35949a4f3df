//! Answers: the bodies that clients read. What is in them, the caller decides.

use serde_json::{Value, json};

use super::key_schema::KeySchema;
use super::requests::{ReturnConsumedCapacity, Select, WriteRequest};
use super::value::Item;
use super::value_json::item_to_json;

/// What a query or a scan found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ItemPage {
    /// What passed the filter, as it is sent.
    pub items: Vec<Item>,
    /// How many items were looked at.
    pub scanned_count: usize,
    /// Where the next page begins, if there may be one.
    pub last_key: Option<Item>,
}

impl ItemPage {
    pub fn body(&self, select: Select, capacity: Option<Value>) -> Value {
        let mut body = json!({"Count": self.items.len(), "ScannedCount": self.scanned_count});
        if select != Select::Count {
            body["Items"] = self.items.iter().map(item_to_json).collect();
        }
        if let Some(key) = &self.last_key {
            body["LastEvaluatedKey"] = item_to_json(key);
        }
        with_capacity(body, capacity)
    }
}

/// The answer of `GetItem`; an item that is not there is left out.
pub fn get_item_body(item: Option<&Item>, capacity: Option<Value>) -> Value {
    with_capacity(item.map_or_else(|| json!({}), |item| json!({"Item": item_to_json(item)})), capacity)
}

/// The answer of `PutItem`, with the item that was there before if the client wants it.
pub fn put_item_body(old: Option<&Item>, capacity: Option<Value>) -> Value {
    with_capacity(old.map_or_else(|| json!({}), |old| json!({"Attributes": item_to_json(old)})), capacity)
}

/// The answer of `BatchGetItem`: what was found in each table, and the keys that were not looked at.
pub fn batch_get_item_body(
    found: &[(String, Vec<Item>)],
    unprocessed: &[(String, Vec<Item>)],
    capacity: Option<Value>,
) -> Value {
    let items = |items: &Vec<Item>| items.iter().map(item_to_json).collect::<Value>();
    let responses: Value = found.iter().map(|(table, found)| (table.clone(), items(found))).collect();
    let left: Value =
        unprocessed.iter().map(|(table, keys)| (table.clone(), json!({"Keys": items(keys)}))).collect();
    with_capacity(json!({"Responses": responses, "UnprocessedKeys": left}), capacity)
}

/// The answer of `BatchWriteItem`: what was not written, for the client to send again.
pub fn batch_write_item_body(unprocessed: &[(String, Vec<WriteRequest>)], capacity: Option<Value>) -> Value {
    let left: Value = unprocessed
        .iter()
        .map(|(table, writes)| (table.clone(), writes.iter().map(WriteRequest::to_json).collect::<Value>()))
        .collect();
    with_capacity(json!({"UnprocessedItems": left}), capacity)
}

/// What is said of the capacity that was used, if the client asked.
pub fn consumed_capacity(
    asked: ReturnConsumedCapacity,
    table: &str,
    index: Option<&str>,
    units: f64,
) -> Option<Value> {
    let mut capacity = json!({"TableName": table, "CapacityUnits": units});
    match asked {
        ReturnConsumedCapacity::None => return None,
        ReturnConsumedCapacity::Total => {}
        ReturnConsumedCapacity::Indexes => {
            let of_table = if index.is_some() { 0.0 } else { units };
            capacity["Table"] = json!({"CapacityUnits": of_table});
            if let Some(index) = index {
                capacity["GlobalSecondaryIndexes"] = json!({index: {"CapacityUnits": units}});
            }
        }
    }
    Some(capacity)
}

/// The description of a table that is there and costs by the request.
#[derive(Debug, Clone, PartialEq)]
pub struct TableDescription {
    pub name: String,
    pub arn: String,
    pub keys: KeySchema,
    /// Indexes have all attributes of the items.
    pub indexes: Vec<(String, KeySchema)>,
    /// When the table was made, in epoch seconds.
    pub created_seconds: u64,
    pub item_count: u64,
    pub table_bytes: u64,
}

impl TableDescription {
    pub fn body(&self) -> Value {
        let mut names: Vec<&String> = Vec::new();
        for schema in std::iter::once(&self.keys).chain(self.indexes.iter().map(|(_, schema)| schema)) {
            for name in [&schema.partition, &schema.sort] {
                if !names.contains(&name) {
                    names.push(name);
                }
            }
        }
        let definition = |name: &String| json!({"AttributeName": name, "AttributeType": "S"});
        let index = |(name, schema): &(String, KeySchema)| {
            json!({
                "IndexName": name,
                "IndexArn": format!("{}/index/{name}", self.arn),
                "IndexStatus": "ACTIVE",
                "KeySchema": key_schema(schema),
                "Projection": {"ProjectionType": "ALL"},
            })
        };
        json!({"Table": {
            "TableName": self.name,
            "TableArn": self.arn,
            "TableStatus": "ACTIVE",
            "CreationDateTime": self.created_seconds,
            "ItemCount": self.item_count,
            "TableSizeBytes": self.table_bytes,
            "KeySchema": key_schema(&self.keys),
            "AttributeDefinitions": names.into_iter().map(definition).collect::<Value>(),
            "GlobalSecondaryIndexes": self.indexes.iter().map(index).collect::<Value>(),
            "BillingModeSummary": {"BillingMode": "PAY_PER_REQUEST"},
        }})
    }
}

/// The answer of `ListTables`; `last` is the last name of the page if there are more.
pub fn list_tables_body(names: &[String], last: Option<&str>) -> Value {
    let mut body = json!({"TableNames": names});
    if let Some(last) = last {
        body["LastEvaluatedTableName"] = last.into();
    }
    body
}

fn key_schema(schema: &KeySchema) -> Value {
    json!([
        {"AttributeName": schema.partition, "KeyType": "HASH"},
        {"AttributeName": schema.sort, "KeyType": "RANGE"},
    ])
}

fn with_capacity(mut body: Value, capacity: Option<Value>) -> Value {
    if let Some(capacity) = capacity {
        body["ConsumedCapacity"] = capacity;
    }
    body
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dynamodb::AttributeValue;

    #[test]
    fn answers_have_the_shape_that_clients_read() {
        let item = Item::from([("PK".to_owned(), AttributeValue::text("a"))]);
        let page = ItemPage { items: vec![item.clone()], scanned_count: 3, last_key: Some(item.clone()) };
        let capacity = |asked| consumed_capacity(asked, "events", Some("GSI1"), 0.5);
        for (body, expected) in [
            (
                page.body(Select::AllAttributes, None),
                json!({
                    "Items": [{"PK": {"S": "a"}}],
                    "Count": 1,
                    "ScannedCount": 3,
                    "LastEvaluatedKey": {"PK": {"S": "a"}},
                }),
            ),
            (ItemPage::default().body(Select::Count, None), json!({"Count": 0, "ScannedCount": 0})),
            (get_item_body(None, None), json!({})),
            (get_item_body(Some(&item), None), json!({"Item": {"PK": {"S": "a"}}})),
            (
                put_item_body(Some(&item), capacity(ReturnConsumedCapacity::Total)),
                json!({
                    "Attributes": {"PK": {"S": "a"}},
                    "ConsumedCapacity": {"TableName": "events", "CapacityUnits": 0.5},
                }),
            ),
            (batch_get_item_body(&[], &[], None), json!({"Responses": {}, "UnprocessedKeys": {}})),
            (
                batch_write_item_body(&[("events".to_owned(), vec![WriteRequest::Put(item)])], None),
                json!({"UnprocessedItems": {"events": [{"PutRequest": {"Item": {"PK": {"S": "a"}}}}]}}),
            ),
            (list_tables_body(&["events".to_owned()], None), json!({"TableNames": ["events"]})),
        ] {
            assert_eq!(body, expected);
        }
        assert_eq!(capacity(ReturnConsumedCapacity::None), None);
    }

    #[test]
    fn every_key_of_a_table_is_described_once() {
        let table = TableDescription {
            name: "events".to_owned(),
            arn: "arn:aws:dynamodb:us-east-1:000000000000:table/events".to_owned(),
            keys: KeySchema::new("PK", "SK"),
            indexes: vec![("GSI1".to_owned(), KeySchema::new("GSI1PK", "SK"))],
            created_seconds: 1,
            item_count: 2,
            table_bytes: 3,
        };
        let body = table.body();
        let names = body["Table"]["AttributeDefinitions"].as_array().unwrap().iter();
        assert_eq!(names.map(|name| &name["AttributeName"]).collect::<Vec<_>>(), ["PK", "SK", "GSI1PK"]);
        assert_eq!(body["Table"]["GlobalSecondaryIndexes"][0]["KeySchema"][0]["AttributeName"], "GSI1PK");
    }
}
