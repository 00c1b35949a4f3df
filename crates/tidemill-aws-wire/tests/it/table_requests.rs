//! Requests of clients: what is read of them, and what is said of those that are wrong.

use serde_json::{Value, json};

use tidemill_aws_wire::dynamodb::expression::{ItemCondition, KeyCondition, SortCondition};
use tidemill_aws_wire::dynamodb::requests::{
    BatchGetItemRequest, BatchWriteItemRequest, PutItemRequest, QueryRequest, Select,
};
use tidemill_aws_wire::dynamodb::{AttributeValue, DynamoDbError, Item, KeySchema};

/// The request of the documents, with other members.
fn query(change: &Value) -> Vec<u8> {
    let mut body = json!({
        "TableName": "events",
        "KeyConditionExpression": "GSI1PK = :pk AND begins_with(GSI1SK, :sk)",
        "ExpressionAttributeValues": {":pk": {"S": "TASK#1"}, ":sk": {"S": "TASK#"}},
        "Unknown": [1],
        "FilterExpression": null,
    });
    for (name, value) in change.as_object().unwrap() {
        body[name] = value.clone();
    }
    body.to_string().into_bytes()
}

#[test]
fn a_query_of_an_index_is_read() {
    let change = json!({"IndexName": "GSI1", "ScanIndexForward": false, "Limit": 1});
    let request = QueryRequest::parse(&query(&change)).unwrap();
    assert_eq!((request.limit, request.is_forward, request.is_consistent), (Some(1), false, false));
    assert_eq!(request.select, Select::AllProjectedAttributes);
    let (table, index) = (KeySchema::new("PK", "SK"), KeySchema::new("GSI1PK", "GSI1SK"));
    let sort = Some(SortCondition::BeginsWith("TASK#".into()));
    assert_eq!(
        request.key_condition(&table, Some(&index)),
        Ok(KeyCondition { partition: "TASK#1".into(), sort })
    );
}

#[test]
fn what_is_wrong_with_a_query_is_said_as_aws_says_it() {
    for (change, expected) in [
        (
            json!({"TableName": null}),
            "1 validation error detected: Value null at 'tableName' failed to satisfy constraint: Member must not \
             be null",
        ),
        (
            json!({"Limit": 0, "Select": "ALL"}),
            "2 validation errors detected: Value '0' at 'limit' failed to satisfy constraint: Member must have \
             value greater than or equal to 1; Value 'ALL' at 'select' failed to satisfy constraint: Member must \
             satisfy enum value set: [SPECIFIC_ATTRIBUTES, COUNT, ALL_ATTRIBUTES, ALL_PROJECTED_ATTRIBUTES]",
        ),
        (json!({"Limit": "1"}), "STRING_VALUE cannot be converted to Integer"),
        (
            json!({"KeyConditions": {}}),
            "The legacy parameter KeyConditions is not supported; use KeyConditionExpression",
        ),
        (
            json!({"KeyConditionExpression": null, "ExpressionAttributeValues": null}),
            "Either the KeyConditions or KeyConditionExpression parameter must be specified in the request.",
        ),
        (
            json!({"KeyConditionExpression": null}),
            "ExpressionAttributeValues can only be specified when using expressions: FilterExpression and \
             KeyConditionExpression are null",
        ),
        (
            json!({"FilterExpression": "status = :pk"}),
            "Invalid FilterExpression: Attribute name is a reserved keyword; reserved keyword: status",
        ),
        (
            json!({"ExpressionAttributeNames": {"#a": "a"}}),
            "Value provided in ExpressionAttributeNames unused in expressions: keys: {#a}",
        ),
        (
            json!({"ExpressionAttributeValues": {":pk": {"N": "x"}}}),
            "ExpressionAttributeValues contains invalid value: The parameter cannot be converted to a numeric \
             value: x for key :pk",
        ),
        (
            json!({"Select": "COUNT", "ProjectionExpression": "PK"}),
            "Cannot specify the ProjectionExpression when choosing to get only the Count",
        ),
        (
            json!({"ExclusiveStartKey": {"PK": {}}}),
            "The provided starting key is invalid: Supplied AttributeValue is empty, must contain exactly one of \
             the supported datatypes",
        ),
    ] {
        let error = QueryRequest::parse(&query(&change)).expect_err("it is wrong");
        assert_eq!(error.to_string(), expected, "{change}");
    }
    assert_eq!(QueryRequest::parse(b"[").unwrap_err().code(), "SerializationException");
}

#[test]
fn what_is_wrong_with_a_query_for_its_keys_is_said_too() {
    let (table, index) = (KeySchema::new("PK", "SK"), KeySchema::new("GSI1PK", "GSI1SK"));
    for (change, expected) in [
        (json!({"ConsistentRead": true}), "Consistent reads are not supported on global secondary indexes"),
        (json!({"ExclusiveStartKey": {"PK": {"S": "a"}}}), "The provided starting key is invalid"),
        (
            json!({"FilterExpression": "GSI1SK > :pk"}),
            "Filter Expression can only contain non-primary key attributes: Primary key attribute: GSI1SK",
        ),
    ] {
        let error = QueryRequest::parse(&query(&change)).unwrap().key_condition(&table, Some(&index));
        assert_eq!(error.unwrap_err().to_string(), expected, "{change}");
    }
    let error = QueryRequest::parse(&query(&json!({}))).unwrap().key_condition(&table, None);
    assert_eq!(error.unwrap_err().to_string(), "Query condition missed key schema element: PK");
}

/// The lock of the documents. A dot in a placeholder's name is part of the name, so `#cs` is no path: that is how
/// DynamoDB reads it.
#[test]
fn a_put_is_judged_by_what_is_stored() {
    let put = |failure: &str| {
        let body = json!({
            "TableName": "events",
            "Item": {"PK": {"S": "a"}, "SK": {"S": "b"}},
            "ConditionExpression": "attribute_not_exists(PK) OR #cs = :expected",
            "ExpressionAttributeNames": {"#cs": "properties.currentState"},
            "ExpressionAttributeValues": {":expected": {"S": "PENDING"}},
            "ReturnValuesOnConditionCheckFailure": failure,
        });
        PutItemRequest::parse(body.to_string().as_bytes()).unwrap()
    };
    let text = AttributeValue::text;
    let item = |name: &str, value: AttributeValue| {
        Item::from([("PK".to_owned(), text("a")), (name.to_owned(), value)])
    };
    let nested = AttributeValue::M(Item::from([("currentState".to_owned(), text("PENDING"))]));
    for (stored, may_go_on) in [
        (None, true),
        (Some(item("properties.currentState", text("PENDING"))), true),
        (Some(item("properties.currentState", text("DONE"))), false),
        (Some(item("properties", nested)), false),
    ] {
        let expected =
            |item| if may_go_on { Ok(()) } else { Err(DynamoDbError::ConditionalCheckFailed { item }) };
        assert_eq!(put("NONE").judge(stored.as_ref()), expected(None));
        assert_eq!(put("ALL_OLD").judge(stored.as_ref()), expected(stored.clone()));
    }
}

#[test]
fn puts_and_batches_have_their_limits() {
    let error = |body: &Value| PutItemRequest::parse(body.to_string().as_bytes()).unwrap_err().to_string();
    assert_eq!(
        error(&json!({"TableName": "events", "Item": {}, "ReturnValues": "ALL_NEW"})),
        "ReturnValues can only be ALL_OLD or NONE"
    );
    let key = |at: usize| json!({"PK": {"S": at.to_string()}});
    let gets = |keys: Vec<Value>| {
        let body = json!({"RequestItems": {"events": {"Keys": keys}}});
        BatchGetItemRequest::parse(body.to_string().as_bytes()).map_err(|error| error.to_string())
    };
    assert_eq!(gets((0..100).map(key).collect()).unwrap().tables[0].keys.len(), 100);
    let too_many = "Too many items requested for the BatchGetItem call";
    assert_eq!(gets((0..101).map(key).collect()).unwrap_err(), too_many);
    assert_eq!(gets(vec![key(1), key(1)]).unwrap_err(), "Provided list of item keys contains duplicates");
    let writes = |count: usize| {
        let writes: Vec<_> = (0..count).map(|at| json!({"PutRequest": {"Item": key(at)}})).collect();
        let body = json!({"RequestItems": {"events": writes}});
        BatchWriteItemRequest::parse(body.to_string().as_bytes())
    };
    assert_eq!(writes(25).unwrap().tables[0].1.len(), 25);
    assert!(writes(26).is_err() && writes(0).is_err());
}

/// Keys that cannot be read stand for the work that reading and comparing would be: it is not begun.
#[test]
fn a_batch_of_too_many_keys_is_refused_before_a_key_is_read() {
    let keys = |count: usize| json!({"Keys": vec![json!({"PK": {"S": 1}}); count]});
    let too_many = "Too many items requested for the BatchGetItem call";
    let unreadable = "NUMBER_VALUE cannot be converted to String";
    for (tables, expected) in [
        (json!({"events": keys(100)}), unreadable),
        (json!({"events": keys(101)}), too_many),
        (json!({"events": keys(60), "others": keys(40)}), unreadable),
        (json!({"events": keys(60), "others": keys(41)}), too_many),
    ] {
        let body = json!({"RequestItems": tables}).to_string();
        let error = BatchGetItemRequest::parse(body.as_bytes()).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}

/// Otherwise every item that a query looks at would cost what the largest values cost.
#[test]
fn what_a_filter_says_of_values_alone_is_judged_when_it_is_read() {
    let change = json!({
        "FilterExpression": "contains(:a, :b) OR size(:a) > :n",
        "ExpressionAttributeValues": {
            ":pk": {"S": "TASK#1"}, ":sk": {"S": "TASK#"}, ":a": {"B": "AAAA"}, ":b": {"B": "AAE="}, ":n": {"N": "2"},
        },
    });
    let filter = QueryRequest::parse(&query(&change)).unwrap().filter;
    let constants = [false, true].map(ItemCondition::Constant);
    assert_eq!(filter, Some(ItemCondition::Or(constants.into())));
}
