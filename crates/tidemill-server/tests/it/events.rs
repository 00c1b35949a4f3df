//! Events: published and queried.

use serde_json::{Value, json};

use crate::lab::Lab;

#[tokio::test]
async fn events_are_published_alone_and_in_batches() {
    let lab = Lab::start().await;
    let client = lab.local();
    let event =
        json!({"eventType": "user.created", "entityType": "USER", "entityId": "u 1", "properties": {"a": 1}});
    let one = client.post("/v1/events", &event).await.expect(202);
    assert!(one["eventId"].is_string() && one["timestamp"].is_u64());
    let batch = json!({"events": [
        {"eventType": "a", "timestamp": 1_700_000_000_001_u64},
        {"eventType": "b", "timestamp": 1_700_000_000_002_u64, "ttl": 4_000_000_000_u64},
    ]});
    let two = client.post("/v1/events", &batch).await.expect(202);
    assert_eq!(two["events"].as_array().unwrap().len(), 2);
    assert_eq!(two.get("eventId"), None);
    let found = client.get("/v1/events?entity=USER/u%201").await.expect(200);
    let stored = &found["items"][0];
    assert_eq!(stored["PK"], "TENANT#default");
    assert_eq!(stored["GSI1PK"], "USER#u 1");
    assert!(stored["SK"].as_str().unwrap().ends_with(one["eventId"].as_str().unwrap()));
    assert_eq!((&stored["properties"], &stored["entityType"]), (&json!({"a": 1}), &json!("USER")));
    assert!(stored["receivedAt"].is_u64());
    let apps = client.get("/v1/events?type=a").await.expect(200);
    assert_eq!(
        (&apps["items"][0]["entityType"], &apps["items"][0]["entityId"]),
        (&json!("APP"), &json!("task-workflow"))
    );
}

#[tokio::test]
async fn each_combination_of_filters_finds_its_events() {
    let lab = Lab::start().await;
    let client = lab.local();
    for number in 0..12_u64 {
        let event = json!({
            "eventType": if number % 2 == 0 { "even" } else { "odd" },
            "entityType": "STORE",
            "entityId": if number % 3 == 0 { "s-1" } else { "s-12" },
            "properties": {"number": number},
            "timestamp": 1_700_000_000_000 + number,
        });
        client.post("/v1/events", &event).await.expect(202);
    }
    let find = async |query: &str| -> Vec<u64> {
        let found = client.get(&format!("/v1/events?limit=200{query}")).await.expect(200);
        found["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| event["properties"]["number"].as_u64().unwrap())
            .collect()
    };
    for (query, expected) in [
        ("", (0..12).collect::<Vec<_>>()),
        ("&type=even", vec![0, 2, 4, 6, 8, 10]),
        ("&entity=STORE/s-1", vec![0, 3, 6, 9]),
        ("&type=even&entity=STORE/s-1", vec![0, 6]),
        ("&app=task-workflow&type=odd&entity=STORE/s-1", vec![3, 9]),
        ("&app=task-workflow&entity=STORE/s-1&order=desc", vec![9, 6, 3, 0]),
        ("&app=other", vec![]),
        ("&app=task-workflow&type=odd&from=1700000000003&to=1700000000007", vec![3, 5, 7]),
        ("&from=1700000000010", vec![10, 11]),
        ("&to=1700000000001&order=desc", vec![1, 0]),
    ] {
        assert_eq!(find(query).await, expected, "{query}");
    }
    let page = client.get("/v1/events?limit=5").await.expect(200);
    let next = page["nextCursor"].as_str().unwrap();
    let rest = client.get(&format!("/v1/events?limit=200&cursor={next}")).await.expect(200);
    assert_eq!((rest["items"].as_array().unwrap().len(), &rest["nextCursor"]), (7, &Value::Null));
    for bad in [
        "entity=STORE",
        "entity=store/x",
        "from=5",
        "from=1700000000002&to=1700000000001",
        "order=up",
        "limit=201",
        "cursor=c1",
    ] {
        assert_eq!(client.get(&format!("/v1/events?{bad}")).await.problem().0, 400, "{bad}");
    }
}

#[tokio::test]
async fn se_12_what_is_reserved_or_forged_is_refused() {
    let lab = Lab::start().await;
    let client = lab.local();
    let before = client.get("/v1/events").await.expect(200);
    for (event, status, field) in [
        (json!({"eventType": "Task Completed"}), 403, ""),
        (json!({"eventType": "Job Created"}), 403, ""),
        (json!({"eventType": "x", "entityType": "TASK", "entityId": "r"}), 403, ""),
        (json!({"eventType": "x", "entityType": "JOB", "entityId": "r"}), 403, ""),
        (json!({"eventType": "a#b"}), 400, "eventType"),
        (json!({"eventType": "x", "entityType": "USER", "entityId": "a#TIMESTAMP#1"}), 400, "entityId"),
        (json!({"eventType": "x", "entityType": "user"}), 400, "entityType"),
        (json!({"eventType": "x", "properties": []}), 400, "properties"),
        (json!({"eventType": "x", "properties": {"_s3Overflow": {}}}), 400, "properties"),
        (json!({"eventType": "x", "timestamp": 5}), 400, "timestamp"),
        (json!({"eventType": "x", "timestamp": 9_999_999_999_999_u64}), 400, "timestamp"),
        (json!({"eventType": "x", "PK": "TENANT#other"}), 400, "PK"),
        (json!({"eventType": "x", "tenantId": "other"}), 400, "tenantId"),
        (json!({"properties": {}}), 400, "eventType"),
        (json!({"events": []}), 400, "events"),
        (json!({"events": [{"eventType": "x"}], "eventType": "y"}), 400, "eventType"),
        (json!({"events": [{"eventType": "x"}, {"eventType": "a#"}]}), 400, "events[1].eventType"),
        (json!({"events": vec![json!({"eventType": "x"}); 1_001]}), 400, "events"),
        (json!({"eventType": "x", "properties": {"big": "x".repeat(1_100_000)}}), 413, "properties"),
    ] {
        let answer = client.post("/v1/events", &event).await;
        let (found, _, at) = answer.problem();
        assert_eq!((found, at.as_str()), (status, field), "{}", answer.text());
    }
    assert_eq!(client.get("/v1/events").await.expect(200), before);
}
