//! Conditions hold for the same items as in a double of DynamoDB. `tests/fixtures/ask_moto.py` wrote its answers down, and
//! what DynamoDB's documentation says where the double differs.

use serde_json::{Value, json};
use tidemill_aws_wire::dynamodb::expression::{ItemCondition, Placeholders};
use tidemill_aws_wire::dynamodb::{AttributeValue, Item, item_from_json};

fn placeholders(case: &Value) -> Placeholders {
    let names = case["names"].as_object().unwrap().iter();
    let names: Vec<_> = names.map(|(key, name)| (key.clone(), name.as_str().unwrap().to_owned())).collect();
    let values = case["values"].as_object().unwrap().iter();
    let values: Vec<_> =
        values.map(|(key, json)| (key.clone(), AttributeValue::from_json(json).unwrap())).collect();
    let names = (!names.is_empty()).then(|| names.into_iter().collect());
    let values = (!values.is_empty()).then(|| values.into_iter().collect());
    Placeholders::new(names, values).unwrap()
}

#[test]
fn conditions_hold_where_a_double_says_so() {
    let fixture: Value = serde_json::from_str(include_str!("../fixtures/conditions.json")).unwrap();
    let items: Vec<Item> =
        fixture["items"].as_array().unwrap().iter().map(|item| item_from_json(item).unwrap()).collect();
    let cases = fixture["cases"].as_array().unwrap();
    assert!(cases.len() > 70, "only {} cases", cases.len());
    for case in cases {
        let text = case["expression"].as_str().unwrap();
        let mut placeholders = placeholders(case);
        let found = match ItemCondition::parse(text, &mut placeholders) {
            Ok(condition) => items.iter().map(|item| condition.holds(item)).collect(),
            Err(_) => json!("refused"),
        };
        let expected = case.get("aws").unwrap_or(&case["moto"]);
        assert_eq!(&found, expected, "{text}");
        assert!(found == "refused" || placeholders.all_used().is_ok(), "{text}");
    }
}
