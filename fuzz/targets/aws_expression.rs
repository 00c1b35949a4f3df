//! Expressions of clients of AWS: any text is an expression or an error, and trying it on an item never panics.
#![no_main]

use std::collections::BTreeMap;

use libfuzzer_sys::fuzz_target;
use tidemill_aws_wire::dynamodb::expression::{ItemCondition, ItemProjection, KeyCondition, Placeholders};
use tidemill_aws_wire::dynamodb::{AttributeValue, Item, KeySchema};

fuzz_target!(|text: &str| {
    let name = |key: &str, name: &str| (key.to_owned(), name.to_owned());
    let names = BTreeMap::from([name("#n", "a"), name("#m", "b"), name("#cs", "properties.currentState")]);
    let one = AttributeValue::N("1".parse().expect("it is a number"));
    let value = |key: &str, value: &AttributeValue| (key.to_owned(), value.clone());
    let s = AttributeValue::text("S");
    let values = BTreeMap::from([value(":v", &s), value(":w", &one), value(":expected", &s)]);
    let mut placeholders = Placeholders::new(Some(names), Some(values)).expect("they are placeholders");

    let map = AttributeValue::M(Item::from([value("b", &AttributeValue::L(vec![s.clone(), one.clone()]))]));
    let item = Item::from([value("PK", &s), value("a", &map), value("b", &one)]);
    if let Ok(condition) = ItemCondition::parse(text, &mut placeholders) {
        condition.holds(&item);
        condition.names("a");
        let _ = KeyCondition::of(&condition, &KeySchema::new("PK", "SK"));
    }
    if let Ok(projection) = ItemProjection::parse(text, &mut placeholders) {
        let part = projection.apply(&item);
        assert!(part.keys().all(|name| item.contains_key(name)), "{text} makes attributes up");
    }
});
