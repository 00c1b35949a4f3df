//! The raw queue over HTTP.

use serde_json::json;

use crate::lab::Lab;

#[tokio::test]
async fn messages_are_sent_received_hidden_and_deleted() {
    let lab = Lab::start().await;
    let client = lab.local();
    let message = json!({
        "body": {"name": "work", "input": {"x": 1}},
        "attributes": {"requestId": "mine", "tenantId": "default", "appName": "shop"},
    });
    let sent = client.post("/v1/queues/tasks/messages", &message).await.expect(202);
    let depth = client.get("/v1/queues/tasks").await.expect(200);
    assert_eq!(
        (&depth["messages"], &depth["ready"], &depth["maxReceiveCount"]),
        (&json!(1), &json!(1), &json!(3))
    );
    let receive = json!({"max": 10, "visibilityMs": 60_000, "waitMs": 1});
    let received = client.post("/v1/queues/tasks/messages/receive", &receive).await.expect(200);
    let delivered = &received["messages"][0];
    assert_eq!(delivered["messageId"], sent["messageId"]);
    assert_eq!(
        (&delivered["deliveries"], &delivered["attributes"]["requestId"]),
        (&json!(1), &json!("mine"))
    );
    assert_eq!(delivered["attributes"]["appName"], "shop");
    assert_eq!((&delivered["body"]["name"], &delivered["body"]["input"]), (&json!("work"), &json!({"x": 1})));
    assert_eq!(
        client.post("/v1/queues/tasks/messages/receive", &json!({})).await.expect(200)["messages"],
        json!([])
    );
    let old = delivered["receipt"].as_str().unwrap().to_owned();
    let visibility = format!("/v1/queues/tasks/messages/{old}/visibility");
    assert_eq!(client.post(&visibility, &json!({"visibleInMs": 0})).await.status, 204);
    let again =
        client.post("/v1/queues/tasks/messages/receive", &json!({"waitMs": 30_000})).await.expect(200);
    let new = again["messages"][0]["receipt"].as_str().unwrap().to_owned();
    assert_eq!(again["messages"][0]["deliveries"], 2);
    assert_eq!(
        client.delete(&format!("/v1/queues/tasks/messages/{old}")).await.status,
        404,
        "a stale receipt"
    );
    assert_eq!(client.delete(&format!("/v1/queues/tasks/messages/{new}")).await.status, 204);
    assert_eq!(client.delete(&format!("/v1/queues/tasks/messages/{new}")).await.status, 404);
    assert_eq!(client.get("/v1/queues/tasks").await.expect(200)["messages"], 0);
}

#[tokio::test]
async fn bad_messages_are_refused() {
    let lab = Lab::start().await;
    let client = lab.local();
    for (body, status, field) in [
        (json!({}), 400, "body"),
        (json!({"body": {}}), 400, "body.name"),
        (json!({"body": {"name": "a#b"}}), 400, "body.name"),
        (json!({"body": {"name": "w", "input": []}}), 400, "input"),
        (json!({"body": {"name": "w", "run": 0}}), 400, "run"),
        (json!({"body": {"name": "w"}, "attributes": {"requestId": "a/b"}}), 400, "attributes.requestId"),
        (json!({"body": {"name": "w"}, "attributes": {"tenantId": "other"}}), 400, "attributes.tenantId"),
        (json!({"body": {"name": "w"}, "attributes": {"appName": "a#"}}), 400, "attributes.appName"),
        (json!({"body": {"name": "w"}, "delayMs": 9_999_999_999_u64}), 400, "delay"),
    ] {
        let answer = client.post("/v1/queues/tasks/messages", &body).await;
        let (found, _, at) = answer.problem();
        assert_eq!((found, at.as_str()), (status, field), "{body}");
    }
    for body in [
        json!({"max": 0}),
        json!({"max": 65}),
        json!({"waitMs": 30_001}),
        json!({"visibilityMs": 99_999_999}),
    ] {
        assert_eq!(client.post("/v1/queues/tasks/messages/receive", &body).await.problem().0, 400, "{body}");
    }
    for receipt in
        ["x", "00000000000000000000000000000001-1", "00000000000000000000000000000001-99999999999999"]
    {
        assert_eq!(
            client.delete(&format!("/v1/queues/tasks/messages/{receipt}")).await.status,
            404,
            "{receipt}"
        );
    }
}
