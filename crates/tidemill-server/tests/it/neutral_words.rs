//! Words of one customer's world are nowhere in what everybody reads, but where a contract fixes them.

use serde_json::{Value, json};

use crate::dashboard::{Browser, PAGES};
use crate::lab::{Client, Lab};

const WORDS: [&str; 7] = ["county", "counties", "elephant", "mvl", "svl", "20cook", "parcel"];

fn has_word(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    WORDS.iter().any(|word| text.contains(word))
}

/// Texts with such a word, with their places. Fields and conditions of this name are the contract's, and so is what is said
/// of them.
fn strange(value: &Value, place: &str, found: &mut Vec<String>) {
    match value {
        Value::String(text) if has_word(text) => found.push(format!("{place}: {text}")),
        Value::Object(fields) if fields.get("name") == Some(&json!("county")) => {}
        Value::Object(fields) => {
            for (name, field) in fields.iter().filter(|(name, _)| *name != "county") {
                strange(field, &format!("{place}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for item in items.iter().filter(|item| *item != "county" || !place.ends_with("/required")) {
                strange(item, place, found);
            }
        }
        _ => {}
    }
}

#[test]
fn the_document_is_for_everybody() {
    let mut found = Vec::new();
    strange(&tidemill_server::openapi_document(), "", &mut found);
    // What senders of the contract's events must know.
    let is_allowed = |line: &String| {
        line.starts_with("/components/schemas/WorkflowEnvelope/properties/detail/description")
    };
    found.retain(|line| !is_allowed(line));
    assert_eq!(found, Vec::<String>::new());
}

/// A job with two tasks of one kind that failed and wait.
async fn parked_tasks(client: &Client, labels: Value) -> Vec<String> {
    client.define("work").await;
    let task = |id: &str, labels: Value| json!({"taskId": id, "name": "work", "onFailure": "park", "retry": {"maxAttempts": 1}, "labels": labels});
    let file = json!({"name": "orders", "tasks": [task("load", labels), task("send", json!({}))]});
    client.post("/v1/jobs", &file).await.expect(201);
    let mut requests = Vec::new();
    for task in client.claim(2).await {
        let outcome = json!({"status": "failed", "error": "no such order", "errorCategory": "validation"});
        client.finish(&task, &outcome).await.expect(200);
        requests.push(task["requestId"].as_str().unwrap().to_owned());
    }
    requests.sort();
    requests
}

/// Also when something waits that failed, of which nobody named such a place.
#[tokio::test]
async fn pages_name_a_county_only_when_a_label_or_an_event_does() {
    let lab = Lab::start().await;
    let client = lab.local();
    let browser = Browser::new(&client);
    for path in PAGES {
        let page = browser.get(path).await.text();
        assert!(!has_word(&page), "{path}: {page}");
    }
    let requests = parked_tasks(&client, json!({})).await;
    let errors = client.get("/v1/workflow/errors").await.expect(200);
    let code = errors["items"][0]["code"].as_str().unwrap().to_owned();
    let [of_code, of_execution] = [format!("/errors/{code}"), format!("/workflow/{}", requests[0])];
    // Events are shown as they are, and the contract's has the field in any case.
    let pages =
        PAGES.into_iter().filter(|path| *path != "/events").chain([of_code.as_str(), of_execution.as_str()]);
    for path in pages {
        let page = browser.get(path).await.text();
        assert!(!has_word(&page) && !page.contains("Data group"), "{path}: {page}");
    }
    assert!(browser.get("/parked").await.text().contains(&requests[0]));
    assert!(browser.get(&of_execution).await.text().contains("<h1>load "), "the step alone");
    // A user who asks for one sees what was asked for.
    let asked = browser.get("/parked?county=EU").await.text();
    assert!(asked.contains("name=\"county\" value=\"EU\"") && !asked.contains(&requests[0]), "{asked}");

    let lab = Lab::start().await;
    let client = lab.local();
    let browser = Browser::new(&client);
    let requests = parked_tasks(&client, json!({"county": "EU"})).await;
    let list = browser.get("/parked").await.text();
    assert!(list.contains(">County</th>") && list.contains("name=\"county\""), "{list}");
    assert!(list.contains(">EU</td>"), "{list}");
    let place = browser.get(&of_code).await.text();
    assert!(place.contains("<th>County</th>") && place.contains("<td>EU</td>"), "{place}");
    assert!(!place.contains("Data group"), "{place}");
    let one = browser.get(&format!("/workflow/{}", requests[0])).await.text();
    assert!(one.contains("<h1>EU load ") && one.contains("<dt>County</dt><dd>EU</dd>"), "{one}");
    let other = browser.get(&format!("/workflow/{}", requests[1])).await.text();
    assert!(other.contains("<h1>send ") && !other.contains("County"), "{other}");
}
