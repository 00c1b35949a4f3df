//! Dead letters over HTTP.

use serde_json::{Value, json};

use crate::lab::Lab;

#[tokio::test]
async fn dead_letters_are_listed_replayed_and_discarded() {
    let lab = Lab::start().await;
    let client = lab.local();
    client.define("work").await;
    for number in 0..3 {
        let task = json!({"requestId": format!("r{number}"), "name": "work", "retry": {"maxAttempts": 1}});
        client.post("/v1/tasks", &task).await.expect(202);
    }
    for task in client.claim(3).await {
        let outcome = json!({"status": "failed", "error": "down", "errorCategory": "network"});
        client.finish(&task, &outcome).await.expect(200);
    }
    let page = client.get("/v1/dead-letters?limit=2").await.expect(200);
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
    let next = page["nextCursor"].as_str().unwrap();
    let rest = client.get(&format!("/v1/dead-letters?limit=2&cursor={next}")).await.expect(200);
    assert_eq!((rest["items"].as_array().unwrap().len(), &rest["nextCursor"]), (1, &Value::Null));
    let letter = &page["items"][0];
    let id = letter["id"].as_str().unwrap();
    assert_eq!(client.get(&format!("/v1/dead-letters/{id}")).await.expect(200), *letter);
    assert_eq!(letter["state"], "open");
    let replayed = client.post(&format!("/v1/dead-letters/{id}/replay"), &json!({})).await.expect(202);
    assert_eq!(replayed["requestId"], letter["requestId"]);
    assert_eq!(client.claim(3).await[0]["requestId"], letter["requestId"]);
    let again = client.post(&format!("/v1/dead-letters/{id}/replay"), &json!({})).await;
    assert_eq!((again.status, again.code().as_str()), (409, "NOT_OPEN"));
    assert!(again.json()["detail"].as_str().unwrap().contains(&id.to_string()), "{}", again.json());
    let other = page["items"][1]["id"].as_str().unwrap();
    let discarded = client.post(&format!("/v1/dead-letters/{other}/discard"), &json!({})).await.expect(200);
    assert_eq!(discarded["state"], "discarded");
    for (state, count) in [("open", 1), ("replayed", 1), ("discarded", 1)] {
        let found = client.get(&format!("/v1/dead-letters?state={state}")).await.expect(200);
        assert_eq!(found["items"].as_array().unwrap().len(), count, "{state}");
    }
    assert_eq!(client.get("/v1/dead-letters").await.expect(200)["items"].as_array().unwrap().len(), 3);
    assert_eq!(client.get(&format!("/v1/dead-letters/{:032x}", 1)).await.status, 404);
}
