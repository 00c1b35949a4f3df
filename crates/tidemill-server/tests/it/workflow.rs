//! Workflow events, errors by cause, marks, and parked executions.

use std::time::Duration;

use serde_json::{Value, json};
use tidemill_engine::policy::Policy;
use tidemill_engine::triage::{TriageKeeper, TriageTimer};
use tidemill_model::Role;
use tidemill_server::ServerConfig;

use crate::lab::{Client, LONG, Lab};

/// An execution as Step Functions names it, with a percent sign and a slash to make it harder.
const ARN: &str = "arn:aws:states:eu-west-1:123456789012:execution:prepare/50%25:2f1c-77";
/// Every answer is searched for this.
const TOKEN: &str = "AQCEAAAAKgAAAAMAAAAAAAAAAb7QkTokenOfTheSample==";

/// A path with this execution in it.
pub(crate) fn path(execution: &str) -> String {
    let encoded = execution.bytes().fold(String::new(), |text, byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => text + &char::from(byte).to_string(),
        byte => text + &format!("%{byte:02X}"),
    });
    format!("/v1/workflow/executions/{encoded}")
}

pub(crate) fn failed(execution: &str, county: &str, step: &str, codes: &[&str]) -> Value {
    let errors: Vec<_> = codes
        .iter()
        .map(|code| json!({"code": code, "details": {"why": format!("{code} went wrong")}}))
        .collect();
    json!({
        "source": "elephant.workflow",
        "detail-type": "WorkflowEvent",
        "detail": {
            "executionId": execution,
            "county": county,
            "dataGroupLabel": "Seed",
            "status": "FAILED",
            "phase": step,
            "step": step,
            "taskToken": format!("token-of-{execution}"),
            "errors": errors,
        },
    })
}

fn message(kind: &str, detail: &Value) -> Value {
    json!({"source": "elephant.workflow", "detail-type": kind, "detail": detail})
}

pub(crate) async fn publish(client: &Client, events: &[Value]) -> Value {
    client.post("/v1/workflow-events", &json!(events)).await.expect(202)
}

/// The codes of a list with how often each occurred.
async fn codes(client: &Client, query: &str) -> Vec<(String, u64)> {
    let page = client.get(&format!("/v1/workflow/errors?{query}")).await.expect(200);
    let items = page["items"].as_array().unwrap().iter();
    items
        .map(|item| (item["code"].as_str().unwrap().to_owned(), item["occurrences"].as_u64().unwrap()))
        .collect()
}

/// The states of an execution's errors.
async fn states(client: &Client, execution: &str) -> Vec<(String, String)> {
    let found = client.get(&path(execution)).await.expect(200);
    let mut states: Vec<_> = found["errors"]
        .as_array()
        .map(|errors| {
            let text = |error: &Value, name: &str| error[name].as_str().unwrap().to_owned();
            errors.iter().map(|error| (text(error, "code"), text(error, "state"))).collect()
        })
        .unwrap_or_default();
    states.sort();
    states
}

fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(code, state)| ((*code).to_owned(), (*state).to_owned())).collect()
}

struct Timer;

impl TriageTimer for Timer {
    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

/// What carries out bulks and gives executions up; ends with its handle.
pub(crate) struct Keeper(tokio::task::JoinHandle<()>);

impl Keeper {
    pub(crate) fn start(lab: &Lab) -> Self {
        let keeper = TriageKeeper::new(lab.engine.clone(), Timer);
        Self(tokio::spawn(async move { keeper.run().await }))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Asks again and again, with a limit that means failure.
async fn until(client: &Client, path: &str, holds: impl Fn(&Value) -> bool) -> Value {
    let asking = async {
        loop {
            let found = client.get(path).await.expect(200);
            if holds(&found) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(LONG, asking).await.expect("it holds in time")
}

#[tokio::test]
async fn we_01_we_02_a_sample_comes_back_as_it_was_but_for_the_token() {
    let lab = Lab::start().await;
    let client = lab.local();
    let detail = format!(
        r#"{{"executionId": "{ARN}", "county":"Cook", "dataGroupLabel": "County", "status" : "FAILED",
            "phase": "SVL", "step": "SVL", "taskToken": "{TOKEN}", "extra": {{"b": 1.50, "a": [null, 1e3]}},
            "errors": [{{"code": "30a1b2c3d4", "details": {{"path": "$.x", "n": 0.10}}}}, {{"code": "31001"}}]}}"#
    );
    let envelope = format!(
        r#"{{"source":"elephant.workflow","detail-type":"WorkflowEvent","time":"2026-11-15T10:00:00Z","id":"e-1","detail":{detail}}}"#
    );
    let headers = [("Content-Type", "application/json")];
    let answer = client.send("POST", "/v1/workflow-events", &headers, envelope.as_bytes()).await;
    assert!(!answer.text().contains(TOKEN));
    let accepted = answer.expect(202);
    assert_eq!(accepted["events"][0]["repeated"], false);
    let events = client.get("/v1/events?type=WorkflowEvent").await;
    let event = events.json()["items"][0].clone();
    assert!(event.to_string().contains(accepted["events"][0]["eventId"].as_str().unwrap()), "{event}");
    let mut expected: Value = serde_json::from_str(&detail).unwrap();
    expected["taskToken"] = json!("[REDACTED]");
    assert_eq!(event["properties"], expected);
    assert!(
        events.text().contains("1.50") && events.text().contains("1e3"),
        "numbers stay as they were written"
    );
    // Resolved and failed-to-resolve come back as they were too.
    for kind in ["ElephantErrorResolved", "ElephantErrorFailedToResolve"] {
        let detail = json!({"executionId": ARN, "errorCode": "31001", "note": "by hand"});
        publish(&client, &[message(kind, &detail)]).await;
        let events = client.get(&format!("/v1/events?type={kind}")).await.expect(200);
        assert_eq!(events["items"][0]["properties"], detail);
    }
    // Nowhere is the token shown.
    for shown in [
        "/v1/events",
        "/v1/workflow/executions",
        "/v1/workflow/executions?parked=true",
        "/v1/workflow/errors",
        "/v1/workflow/errors/31001",
        "/v1/workflow/occurrences?code=31001",
        &path(ARN),
        "/metrics",
    ] {
        let answer = client.get(shown).await;
        assert_eq!(answer.status, 200, "{shown}: {}", answer.text());
        assert!(!answer.text().contains(TOKEN), "{shown}");
        assert!(!answer.text().to_lowercase().contains("digest"), "{shown}");
    }
}

#[tokio::test]
async fn we_03_we_07_we_18_every_mistake_is_told_with_its_field_and_nothing_is_stored() {
    let lab = Lab::start().await;
    let client = lab.local();
    let good = || failed("x-1", "Cook", "SVL", &["31001"]);
    let with = |pointer: &str, value: Value| {
        let mut event = good();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        let parent = event.pointer_mut(parent).unwrap();
        match value {
            Value::Null => drop(parent.as_object_mut().unwrap().remove(name)),
            value => parent[name] = value,
        }
        event
    };
    for (event, field) in [
        (with("/source", json!("somebody.else")), "source"),
        (with("/source", Value::Null), "source"),
        (with("/detail-type", json!("OtherEvent")), "detail-type"),
        (with("/detail", Value::Null), "detail"),
        (with("/detail/status", json!("PARKED")), "detail.status"),
        (with("/detail/status", json!("failed")), "detail.status"),
        (with("/detail/executionId", Value::Null), "detail.executionId"),
        (with("/detail/county", json!(7)), "detail.county"),
        (with("/detail/phase", Value::Null), "detail.phase"),
        (with("/detail/step", json!("")), "detail.step"),
        (with("/detail/errors", json!({})), "detail.errors"),
        (with("/detail/errors", json!([{"code": ""}])), "detail.errors[0].code"),
        (with("/detail/errors", json!([{"code": "20Cook"}, {"code": "X1"}])), "detail.errors[1].code"),
        (with("/detail/errors", json!([{"code": "20Cook", "details": 5}])), "detail.errors[0].details"),
        (message("ElephantErrorResolved", &json!({})), "detail"),
        (message("ElephantErrorFailedToResolve", &json!({"note": 1})), "detail"),
        (json!([]), "body"),
        (json!("x"), "body"),
    ] {
        let answer = client.post("/v1/workflow-events", &event).await;
        let (status, _, named) = answer.problem();
        assert_eq!((status, named.as_str()), (400, field), "{event}: {}", answer.text());
        assert!(!answer.text().contains("token-of"), "{}", answer.text());
    }
    let answer = client.post("/v1/workflow-events", &with("/detail/taskToken", json!(7))).await;
    assert!(answer.text().contains("detail.taskToken: must be a text"), "{}", answer.text());
    for (name, field) in [("/time", "time"), ("/detail/timestamp", "detail.timestamp")] {
        let ahead = with(name, json!("2199-01-01T00:00:00Z"));
        let (_, code, named) = client.post("/v1/workflow-events", &ahead).await.problem();
        assert_eq!((code.as_str(), named.as_str()), ("TOO_FAR_AHEAD", field));
        let answer = client.post("/v1/workflow-events", &json!([good(), ahead])).await;
        assert_eq!(answer.problem().2, format!("[1].{field}"));
        assert!(answer.text().contains(&format!("[1].{field} lies ")), "{}", answer.text());
    }
    // In a list the place is named, and the good ones are not stored either.
    let list = json!([good(), with("/detail/status", json!("GONE"))]);
    let (status, _, named) = client.post("/v1/workflow-events", &list).await.problem();
    assert_eq!((status, named.as_str()), (400, "[1].detail.status"));
    let many: Vec<_> = (0..101).map(|_| good()).collect();
    assert_eq!(client.post("/v1/workflow-events", &json!(many)).await.problem().1, "TOO_MANY");
    assert_eq!(client.get("/v1/events").await.expect(200)["items"], json!([]));
    assert_eq!(client.get(&path("x-1")).await.status, 404);
    // Neither of both is refused by the route too.
    for deed in ["resolve", "fail", "reopen"] {
        let answer = client.post(&format!("/v1/workflow/errors/{deed}"), &json!({"reason": "why"})).await;
        assert_eq!(answer.problem(), (400, "ONE_OF".to_owned(), "executionId".to_owned()));
    }
}

#[tokio::test]
async fn we_05_we_06_known_places_and_new_ones_are_accepted() {
    let lab = Lab::start().await;
    let client = lab.local();
    let phases = [
        "Preprocess",
        "Prepare",
        "Transform",
        "SVL",
        "MVL",
        "Hash",
        "Upload",
        "Submit",
        "AutoRepair",
        "Mint",
    ];
    let steps = [
        "Prepare",
        "EvaluateTransform",
        "Transform",
        "SVL",
        "MVL",
        "EvaluateHash",
        "Hash",
        "EvaluateUpload",
        "Upload",
        "AutoRepair",
        "Brew",
    ];
    for (at, (phase, step)) in phases.iter().flat_map(|phase| steps.map(|step| (phase, step))).enumerate() {
        let id = format!("place-{at}");
        for status in ["SCHEDULED", "IN_PROGRESS", "SUCCEEDED"] {
            let mut event = failed(&id, "Cook", step, &[]);
            event["detail"]["phase"] = json!(phase);
            event["detail"]["status"] = json!(status);
            event["detail"].as_object_mut().unwrap().remove("taskToken");
            publish(&client, &[event]).await;
        }
        let found = client.get(&path(&id)).await.expect(200);
        assert_eq!(
            (&found["phase"], &found["step"], &found["status"], &found["parked"]),
            (&json!(phase), &json!(step), &json!("SUCCEEDED"), &json!(false))
        );
        let is_new = *phase == "Mint" || step == "Brew";
        assert_eq!(found["unknownPlace"] == true, is_new, "{found}");
    }
}

#[tokio::test]
async fn we_04_we_08_we_09_we_10_we_16_errors_are_counted_once_for_each_occurrence() {
    let lab = Lab::start().await;
    let client = lab.local();
    let mut first = failed("e1", "Cook", "Transform", &["20Cook", "20Cook", "20Cook", "20001"]);
    first["id"] = json!("delivery-1");
    let accepted = publish(&client, &[first.clone(), failed("e2", "Lee", "SVL", &[])]).await;
    assert_eq!(codes(&client, "").await, [("20Cook".to_owned(), 3), ("20001".to_owned(), 1)]);
    assert_eq!(codes(&client, "type=20").await.len(), 2);
    assert_eq!(codes(&client, "type=30").await, []);
    // Again, alone and within a list.
    for again in [vec![first.clone()], vec![failed("e3", "Lee", "SVL", &["31001"]), first.clone()]] {
        let repeated = publish(&client, &again).await;
        let last = repeated["events"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(last["repeated"], true);
        assert_eq!(last["eventId"], accepted["events"][0]["eventId"]);
    }
    assert_eq!(codes(&client, "type=20").await, [("20Cook".to_owned(), 3), ("20001".to_owned(), 1)]);
    let found = client.get(&path("e1")).await.expect(200);
    assert_eq!(
        (&found["parked"], &found["status"], &found["token"]),
        (&json!(true), &json!("FAILED"), &json!("unused"))
    );
    let cook = found["errors"].as_array().unwrap().iter().find(|error| error["code"] == "20Cook").unwrap();
    assert_eq!((cook["count"].as_u64(), cook["state"].as_str()), (Some(3), Some("open")));
    let pair = client.get("/v1/workflow/occurrences?code=20Cook&executionId=e1").await.expect(200);
    let seen = pair["items"][0]["occurrences"].as_array().unwrap();
    assert_eq!(seen.len(), 3);
    assert_eq!(seen[0]["details"], json!({"why": "20Cook went wrong"}));
    // A failure without errors is parked all the same.
    let parked = client.get("/v1/workflow/executions?parked=true").await.expect(200);
    let ids: Vec<_> = parked["items"].as_array().unwrap().iter().map(|item| &item["executionId"]).collect();
    assert_eq!(ids, ["e1", "e2", "e3"]);
}

#[tokio::test]
async fn we_11_to_we_15_the_catalogue_knows_the_codes() {
    let lab = Lab::start().await;
    let client = lab.local();
    for (code, phase, category) in [
        ("00001", "Preprocess", Some("Preprocess")),
        ("01002Hamilton", "Prepare", Some("Infrastructure")),
        ("10050Broward", "Prepare", Some("Timeout")),
        ("10054Broward", "Prepare", Some("Timeout")),
        ("10055Broward", "Prepare", None),
        ("20Cook", "Transform", Some("Transform")),
        ("31001", "SVL", None),
        ("40001", "Hash", None),
        ("50001", "Upload", None),
        ("70001", "AutoRepair", None),
        ("70002", "AutoRepair", None),
    ] {
        let known = client.get(&format!("/v1/workflow/catalogue/{code}")).await.expect(200);
        assert_eq!((&known["code"], &known["phase"]), (&json!(code), &json!(phase)), "{known}");
        assert_eq!(known["type"], json!(&code[..2]));
        if let Some(category) = category {
            assert_eq!(known["category"], json!(category), "{known}");
        }
        if code == "10055Broward" {
            assert_eq!(known["category"], Value::Null, "it lies between two ranges");
        }
    }
    for no_code in ["x", "1", "abc"] {
        assert_eq!(client.get(&format!("/v1/workflow/catalogue/{no_code}")).await.status, 404);
    }
    let first = client.get("/v1/workflow/catalogue?limit=3").await.expect(200);
    let cursor = first["nextCursor"].as_str().unwrap();
    let second = client.get(&format!("/v1/workflow/catalogue?limit=200&cursor={cursor}")).await.expect(200);
    let entries: Vec<_> =
        [&first, &second].iter().flat_map(|page| page["items"].as_array().unwrap().clone()).collect();
    assert!(entries.len() > 25 && second["nextCursor"].is_null(), "{}", entries.len());
    // What a code means stands beside its counts.
    publish(&client, &[failed("e", "Broward", "Prepare", &["10050Broward"])]).await;
    let listed = client.get("/v1/workflow/errors").await.expect(200);
    assert_eq!(listed["items"][0]["category"], "Timeout");
}

#[tokio::test]
async fn we_17_we_19_we_20_marks_change_exactly_what_they_name() {
    let lab = Lab::start().await;
    let client = lab.local();
    let two = ["20Cook", "31001"];
    publish(&client, &[failed("e1", "Cook", "SVL", &two), failed("e2", "Cook", "SVL", &two)]).await;
    // By execution, as an event from outside.
    publish(&client, &[message("ElephantErrorResolved", &json!({"executionId": "e1"}))]).await;
    assert_eq!(states(&client, "e1").await, owned(&[("20Cook", "resolved"), ("31001", "resolved")]));
    assert_eq!(states(&client, "e2").await, owned(&[("20Cook", "open"), ("31001", "open")]));
    // By code, by a call.
    let reopened = client.post("/v1/workflow/errors/reopen", &json!({"executionId": "e1"})).await.expect(200);
    assert_eq!(reopened["changed"], 2);
    let wish = json!({"errorCode": "20Cook", "reason": "parser fixed"});
    let resolved = client.post("/v1/workflow/errors/resolve", &wish).await.expect(200);
    assert_eq!(resolved["changed"], 2);
    for execution in ["e1", "e2"] {
        assert_eq!(states(&client, execution).await, owned(&[("20Cook", "resolved"), ("31001", "open")]));
    }
    let told = client.get("/v1/events?type=ElephantErrorResolved&order=desc").await.expect(200);
    assert!(told["items"][0].to_string().contains(resolved["eventId"].as_str().unwrap()), "{told}");
    assert_eq!(
        told["items"][0]["properties"],
        json!({"errorCode": "20Cook", "by": "local", "reason": "parser fixed"})
    );
    // Both: the pair only.
    let pair = json!({"executionId": "e2", "errorCode": "31001"});
    client.post("/v1/workflow/errors/fail", &pair).await.expect(200);
    assert_eq!(states(&client, "e1").await, owned(&[("20Cook", "resolved"), ("31001", "open")]));
    assert_eq!(states(&client, "e2").await, owned(&[("20Cook", "resolved"), ("31001", "unrecoverable")]));
    let candidates = client.get("/v1/workflow/candidates").await.expect(200);
    let names: Vec<_> = candidates["items"].as_array().unwrap().iter().map(|item| &item["code"]).collect();
    assert_eq!(names, ["31001"], "20Cook is resolved, and e1 still has 31001");
    // A code that is unrecoverable is no candidate, and what comes again is unrecoverable at once.
    publish(&client, &[message("ElephantErrorFailedToResolve", &json!({"errorCode": "31001"}))]).await;
    assert_eq!(client.get("/v1/workflow/candidates").await.expect(200)["items"], json!([]));
    publish(&client, &[failed("e3", "Lee", "SVL", &["31001", "20Cook"])]).await;
    assert_eq!(states(&client, "e3").await, owned(&[("20Cook", "open"), ("31001", "unrecoverable")]));
    let candidates = client.get("/v1/workflow/candidates").await.expect(200);
    assert_eq!(candidates["items"].as_array().unwrap().len(), 1);
    let group = client.get("/v1/workflow/errors/31001").await.expect(200)["group"].clone();
    assert_eq!((group["unrecoverable"].as_u64(), group["open"].as_u64()), (Some(3), Some(0)));
    assert_eq!(group["unrecoverableSince"]["state"], "unrecoverable");
    // What is not there cannot be marked.
    for unknown in [json!({"executionId": "nobody"}), json!({"errorCode": "77777"})] {
        assert_eq!(client.post("/v1/workflow/errors/resolve", &unknown).await.problem().0, 404);
    }
    // An event about something unknown is history like any other.
    publish(&client, &[message("ElephantErrorResolved", &json!({"errorCode": "77777"}))]).await;
}

#[tokio::test]
async fn a_code_is_ignored_for_a_time_or_a_count() {
    let lab = Lab::start().await;
    let client = lab.local();
    publish(&client, &[failed("e1", "Cook", "SVL", &["31001"])]).await;
    let wish = json!({"errorCode": "31001", "occurrences": 2, "reason": "known"});
    assert_eq!(client.post("/v1/workflow/errors/ignore", &wish).await.expect(200)["changed"], 1);
    assert_eq!(states(&client, "e1").await, owned(&[("31001", "ignored")]));
    assert_eq!(codes(&client, "state=open").await, []);
    assert_eq!(codes(&client, "state=ignored").await.len(), 1);
    publish(&client, &[failed("e2", "Cook", "SVL", &["31001"])]).await;
    assert_eq!(states(&client, "e2").await, owned(&[("31001", "ignored")]));
    publish(&client, &[failed("e3", "Cook", "SVL", &["31001"])]).await;
    assert_eq!(codes(&client, "state=open").await.len(), 1, "it came twice again");
    assert_eq!(states(&client, "e1").await, owned(&[("31001", "open")]));
    for (wish, field) in [
        (json!({"errorCode": "31001", "until": 1_000_000_000_000_u64}), "until"),
        (json!({"errorCode": "31001", "occurrences": 0}), "occurrences"),
        (json!({"errorCode": "X"}), "errorCode"),
        (json!({}), "errorCode"),
    ] {
        let answer = client.post("/v1/workflow/errors/ignore", &wish).await;
        assert_eq!((answer.status, answer.problem().2.as_str()), (400, field), "{}", answer.text());
    }
    let future = json!({"errorCode": "31001", "until": 9_000_000_000_000_u64});
    assert_eq!(client.post("/v1/workflow/errors/ignore", &future).await.expect(200)["changed"], 3);
    let shown = client.get("/v1/workflow/errors/31001").await.expect(200);
    assert_eq!(shown["group"]["ignoredSince"]["until"], 9_000_000_000_000_u64);
}

/// Three executions, three codes, two counties; one code is resolved.
async fn three(client: &Client) {
    let events = [
        failed("e1", "Cook", "Transform", &["20Cook", "20001"]),
        failed("e2", "Lee", "Transform", &["20001", "20001"]),
        failed("e3", "Lee", "SVL", &["31001"]),
    ];
    publish(client, &events).await;
    client.post("/v1/workflow/errors/resolve", &json!({"errorCode": "31001"})).await.expect(200);
}

#[tokio::test]
async fn we_24_filters_give_exact_subsets() {
    let lab = Lab::start().await;
    let client = lab.local();
    three(&client).await;
    let named = |expected: &[(&str, u64)]| -> Vec<(String, u64)> {
        expected.iter().map(|(code, count)| ((*code).to_owned(), *count)).collect()
    };
    for (query, expected) in [
        ("", named(&[("20001", 3), ("20Cook", 1), ("31001", 1)])),
        ("code=20001", named(&[("20001", 3)])),
        ("type=20", named(&[("20001", 3), ("20Cook", 1)])),
        ("county=Lee", named(&[("20001", 2), ("31001", 1)])),
        ("county=Lee&type=20", named(&[("20001", 2)])),
        ("county=Cook", named(&[("20001", 1), ("20Cook", 1)])),
        ("phase=SVL", named(&[("31001", 1)])),
        ("step=Transform&county=Cook", named(&[("20001", 1), ("20Cook", 1)])),
        ("state=open", named(&[("20001", 3), ("20Cook", 1)])),
        ("state=resolved", named(&[("31001", 1)])),
        ("state=resolved&county=Cook", named(&[])),
        ("kind=task", named(&[])),
        ("kind=workflow&q=cook", named(&[("20Cook", 1)])),
        ("county=Nowhere", named(&[])),
    ] {
        let mut found = codes(&client, query).await;
        found.sort();
        let mut expected = expected;
        expected.sort();
        assert_eq!(found, expected, "{query}");
    }
    for (query, field) in [
        ("type=2", "type"),
        ("type=ab", "type"),
        ("code=x", "code"),
        ("state=gone", "state"),
        ("cursor=x", "cursor"),
        ("size=1", "size"),
    ] {
        let answer = client.get(&format!("/v1/workflow/errors?{query}")).await;
        assert_eq!((answer.status, answer.problem().2.as_str()), (400, field), "{query}");
    }
    // Page by page, in order, nothing twice.
    let mut all = Vec::new();
    let mut query = "limit=1".to_owned();
    loop {
        let page = client.get(&format!("/v1/workflow/errors?{query}")).await.expect(200);
        all.extend(
            page["items"].as_array().unwrap().iter().map(|item| item["code"].as_str().unwrap().to_owned()),
        );
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        query = format!("limit=1&cursor={cursor}");
    }
    assert_eq!(all.len(), 3);
    assert_eq!(all[0], "20001");
}

#[tokio::test]
async fn we_24_executions_are_found_by_what_they_have() {
    let lab = Lab::start().await;
    let client = lab.local();
    three(&client).await;
    let of = client.get("/v1/workflow/occurrences?executionId=e1").await.expect(200);
    assert_eq!(of["items"].as_array().unwrap().len(), 2);
    let of = client.get("/v1/workflow/occurrences?code=20001&limit=1").await.expect(200);
    assert_eq!(of["items"][0]["executionId"], "e1");
    let cursor = of["nextCursor"].as_str().unwrap();
    let rest = client.get(&format!("/v1/workflow/occurrences?code=20001&cursor={cursor}")).await.expect(200);
    assert_eq!((&rest["items"][0]["executionId"], &rest["nextCursor"]), (&json!("e2"), &Value::Null));
    let answer = client.get("/v1/workflow/occurrences").await;
    assert_eq!(answer.problem().2, "executionId");
    for (query, expected) in [
        ("parked=true&code=20001", vec!["e1", "e2"]),
        ("parked=true&county=Lee", vec!["e2", "e3"]),
        ("parked=true&type=31", vec!["e3"]),
        ("parked=true&step=SVL&county=Cook", vec![]),
        ("parked=false", vec![]),
        ("code=20Cook", vec!["e1"]),
        ("status=FAILED&county=Cook", vec!["e1"]),
        ("status=SUCCEEDED", vec![]),
        ("type=31", vec!["e3"]),
    ] {
        let page = client.get(&format!("/v1/workflow/executions?{query}")).await.expect(200);
        let ids: Vec<_> = page["items"]
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["executionId"].as_str().unwrap())
            .collect();
        assert_eq!(ids, expected, "{query}");
    }
    // What a filter leaves out takes no place on a page.
    client.post(&format!("{}/resume", path("e3")), &json!({})).await.expect(200);
    for (query, expected) in
        [("parked=false&limit=1", "e3"), ("type=31&limit=1", "e3"), ("type=20&limit=1", "e1")]
    {
        let page = client.get(&format!("/v1/workflow/executions?{query}")).await.expect(200);
        let items = page["items"].as_array().unwrap();
        assert_eq!((items.len(), &items[0]["executionId"]), (1, &json!(expected)), "{query}");
        assert_eq!(page["nextCursor"].is_null(), expected == "e3", "{query}: {page}");
    }
    let again = failed("e3", "Lee", "SVL", &["31002"]);
    let again = publish(&client, &[again]).await;
    assert_eq!(again["events"][0]["token"], "used", "{again}");
    let mut again = failed("e3", "Lee", "SVL", &["31001"]);
    again["detail"]["taskToken"] = json!("another-token-of-e3");
    let again = publish(&client, &[again]).await;
    assert_eq!(again["events"][0]["token"], "parked", "{again}");
    let first = client.get("/v1/workflow/executions?parked=true&limit=2").await.expect(200);
    let cursor = first["nextCursor"].as_str().unwrap();
    let rest = client.get(&format!("/v1/workflow/executions?parked=true&cursor={cursor}")).await.expect(200);
    assert_eq!(
        (rest["items"].as_array().unwrap().len(), &rest["items"][0]["executionId"]),
        (1, &json!("e3"))
    );
    // One code with all that is known of it.
    let shown = client.get("/v1/workflow/errors/20001?limit=1").await.expect(200);
    assert_eq!(shown["group"]["executions"], 2);
    assert_eq!(shown["places"].as_array().unwrap().len(), 2);
    assert_eq!(shown["trend"][0]["occurrences"], 3);
    assert_eq!(shown["samples"].as_array().unwrap().len(), 3);
    assert_eq!(shown["samples"][0]["details"], json!({"why": "20001 went wrong"}));
    assert_eq!(shown["errors"]["items"].as_array().unwrap().len(), 1);
    assert!(shown["errors"]["nextCursor"].is_string());
    assert_eq!(client.get("/v1/workflow/errors/29999").await.status, 404);
}

#[tokio::test]
async fn we_21_we_22_we_23_a_parked_execution_is_resumed_or_failed_once() {
    let lab = Lab::start().await;
    let admin = lab.key("acme", Role::Admin).await;
    let producer = lab.key("acme", Role::Producer).await;
    publish(&producer, &[failed(ARN, "Cook", "SVL", &["31001"]), failed("e2", "Lee", "SVL", &["31001"])])
        .await;
    let ask = |token: String, wait: u64| json!({"token": token, "waitMs": wait});
    let token = || format!("token-of-{ARN}");
    let outcome = producer.post("/v1/workflow/tokens/outcome", &ask(token(), 0)).await.expect(200);
    assert_eq!(outcome, json!({"state": "waiting"}));
    // A waiting caller gets it at once.
    let (waiting, wish) = (producer.clone(), ask(token(), 60_000));
    let waiting = tokio::spawn(async move { waiting.post("/v1/workflow/tokens/outcome", &wish).await });
    assert_eq!(producer.post(&format!("{}/resume", path(ARN)), &json!({})).await.status, 403);
    let wish = json!({"output": {"resolved": true, "rows": 7}, "reason": "fixed"});
    let answer = admin.post(&format!("{}/resume", path(ARN)), &wish).await;
    assert!(!answer.text().contains("token-of"), "{}", answer.text());
    let resumed = answer.expect(200);
    assert_eq!((&resumed["parked"], &resumed["token"]), (&json!(false), &json!("used")));
    assert_eq!(resumed["outcome"]["output"], json!({"resolved": true, "rows": 7}));
    assert_eq!(
        (&resumed["outcome"]["kind"], &resumed["outcome"]["reason"]),
        (&json!("resumed"), &json!("fixed"))
    );
    let heard = tokio::time::timeout(LONG, waiting).await.expect("it hears in time").unwrap().expect(200);
    assert_eq!(heard["state"], "ended");
    assert_eq!(heard["outcome"]["output"], json!({"resolved": true, "rows": 7}));
    // Its token is used.
    for deed in ["resume", "fail"] {
        let answer = admin.post(&format!("{}/{deed}", path(ARN)), &json!({})).await;
        assert_eq!((answer.status, answer.code().as_str()), (409, "NOT_PARKED"));
        let answer = admin.post(&format!("{}/{deed}", path("nobody")), &json!({})).await;
        assert_eq!((answer.status, answer.code().as_str()), (404, "NOT_FOUND"));
    }
    // Failed with what is usual.
    let ended = admin.post(&format!("{}/fail", path("e2")), &json!({})).await.expect(200);
    let outcome = &ended["outcome"];
    assert_eq!(
        (&outcome["kind"], &outcome["error"], &outcome["cause"]),
        (&json!("failed"), &json!("ResolutionFailed"), &json!("Unable to resolve errors"))
    );
    assert_eq!(admin.get("/v1/workflow/executions?parked=true").await.expect(200)["items"], json!([]));
    for event in ["Execution Resumed", "Execution Failed"] {
        let told = admin.get(&format!("/v1/events?type={}", event.replace(' ', "%20"))).await.expect(200);
        assert_eq!(told["items"].as_array().unwrap().len(), 1, "{event}");
    }
    // Resumed with nothing said, after it was parked again with another token.
    let mut again = failed("e2", "Lee", "SVL", &["31001"]);
    again["detail"]["taskToken"] = json!("second");
    publish(&producer, &[again]).await;
    let resumed = admin.post(&format!("{}/resume", path("e2")), &json!({})).await.expect(200);
    assert_eq!(resumed["outcome"]["output"], json!({"resolved": true}));
    // A token that nobody gave, or of another tenant, is not there.
    let other = lab.key("other", Role::Producer).await;
    for (client, token) in [(&producer, "never-given".to_owned()), (&other, token())] {
        let answer = client.post("/v1/workflow/tokens/outcome", &ask(token.clone(), 0)).await;
        assert_eq!((answer.status, answer.code().as_str()), (404, "NOT_FOUND"));
        assert!(!answer.text().contains(&token), "{}", answer.text());
    }
    for (wish, field) in [
        (json!({"token": ""}), "token"),
        (json!({"token": "x\ny"}), "token"),
        (json!({"token": "x", "waitMs": 60_001}), "waitMs"),
        (json!({"waitMs": 1}), "token"),
    ] {
        let answer = producer.post("/v1/workflow/tokens/outcome", &wish).await;
        assert_eq!((answer.status, answer.problem().2.as_str()), (400, field), "{}", answer.text());
    }
    for (deed, wish, field) in [
        ("resume", json!({"mode": "twice"}), "mode"),
        ("resume", json!({"token": "x"}), "token"),
        ("fail", json!({"error": ""}), "error"),
        ("fail", json!({"reason": "x".repeat(1_001)}), "reason"),
    ] {
        let answer = admin.post(&format!("{}/{deed}", path("e2")), &wish).await;
        assert_eq!((answer.status, answer.problem().2.as_str()), (400, field), "{}", answer.text());
    }
}

#[tokio::test]
async fn an_execution_that_will_be_given_up_soon_stands_among_the_alerts() {
    let lab = Lab::start().await;
    let client = lab.local();
    publish(&client, &[failed(ARN, "Cook", "SVL", &["31001"])]).await;
    let none = json!({"items": [], "nextCursor": null});
    assert_eq!(client.get("/v1/alerts").await.expect(200), none);
    lab.pass(lab.engine.policy().park_millis / 20 * 19);
    let _keeper = Keeper::start(&lab);
    let is_there = |found: &Value| !found["items"].as_array().unwrap().is_empty();
    let found = until(&client, "/v1/alerts", is_there).await;
    let [alert] = &found["items"].as_array().unwrap()[..] else { panic!("one: {found}") };
    assert_eq!(alert["kind"], "parked_expiring", "{found}");
    let told = client.get("/v1/events?type=Alert%20Raised").await.expect(200);
    assert!(told.to_string().contains("parked_expiring"), "{told}");
    assert!(alert["message"].as_str().unwrap().starts_with(&format!("{ARN} is parked")), "{found}");
    client.post(&format!("{}/resume", path(ARN)), &json!({})).await.expect(200);
    assert_eq!(client.get("/v1/alerts").await.expect(200), none, "somebody came");
}

#[tokio::test]
async fn an_execution_that_nobody_came_for_is_given_up() {
    let policy = Policy { park_millis: 1_000, ..Policy::default() };
    let lab = Lab::with(ServerConfig::default(), policy).await;
    let client = lab.local();
    let _keeper = Keeper::start(&lab);
    publish(&client, &[failed(ARN, "Cook", "SVL", &["31001"])]).await;
    let found = until(&client, &path(ARN), |found| found["parked"] == false).await;
    assert_eq!((&found["token"], &found["outcome"]["kind"]), (&json!("expired"), &json!("expired")));
    let answer = client.post(&format!("{}/resume", path(ARN)), &json!({})).await;
    assert_eq!((answer.status, answer.code().as_str()), (410, "TOKEN_EXPIRED"));
    let ask = json!({"token": format!("token-of-{ARN}"), "waitMs": 1});
    let outcome = client.post("/v1/workflow/tokens/outcome", &ask).await.expect(200);
    assert_eq!(outcome["outcome"]["kind"], "expired");
}

#[tokio::test]
async fn many_are_resumed_by_one_call_after_a_look() {
    let lab = Lab::start().await;
    let client = lab.local();
    let mut events: Vec<_> =
        (0..60).map(|n| failed(&format!("cook-{n}"), "Cook", "SVL", &["20Cook"])).collect();
    events.extend((0..5).map(|n| failed(&format!("lee-{n}"), "Lee", "SVL", &["31001"])));
    publish(&client, &events).await;
    for (wish, field) in [
        (json!({"action": "resume"}), "filter"),
        (json!({"action": "resume", "filter": {}}), "filter"),
        (json!({"action": "resume", "filter": []}), "filter"),
        (json!({"action": "resume", "filter": {"all": true, "code": "20Cook"}}), "filter.all"),
        (json!({"action": "stop", "filter": {"all": true}}), "action"),
        (json!({"action": "resume", "filter": {"code": "x"}}), "filter"),
        (
            json!({"action": "resume", "filter": {"executionIds": ["a", "b", "", "c"]}}),
            "filter.executionIds[2]",
        ),
        (json!({"action": "resume", "filter": {"executionIds": ["a", 7]}}), "filter.executionIds[1]"),
        (json!({"action": "resume", "filter": {"executionIds": "a"}}), "filter.executionIds"),
        (json!({"action": "resume", "filter": {"all": true}, "error": "x"}), "error"),
        (json!({"action": "fail", "filter": {"all": true}, "output": {}}), "output"),
        (json!({"action": "fail", "filter": {"all": true}, "ratePerSecond": 0}), "ratePerSecond"),
    ] {
        let answer = client.post("/v1/workflow/bulk", &wish).await;
        let named = answer.problem().2;
        assert_eq!((answer.status, named.as_str()), (400, field), "{wish}: {}", answer.text());
    }
    let wish = |more: Value| {
        let mut wish = json!({"action": "resume", "filter": {"code": "20Cook"}});
        wish.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        wish
    };
    let preview = client.post("/v1/workflow/bulk", &wish(json!({"dryRun": true}))).await.expect(200);
    assert_eq!((preview["total"].as_u64(), preview["first"].as_array().unwrap().len()), (Some(60), 10));
    assert_eq!(preview["byCode"], json!([{"code": "20Cook", "executions": 60}]));
    assert_eq!(client.get("/v1/workflow/bulk").await.expect(200)["items"], json!([]), "nothing began");
    let bulk = client
        .post("/v1/workflow/bulk", &wish(json!({"output": {"fixed": 1}, "reason": "deployed"})))
        .await
        .expect(202);
    assert_eq!((&bulk["state"], bulk["total"].as_u64()), (&json!("running"), Some(60)));
    let own = format!("/v1/workflow/bulk/{}", bulk["id"].as_str().unwrap());
    let _keeper = Keeper::start(&lab);
    let done = until(&client, &own, |bulk| bulk["state"] != "running").await;
    assert_eq!(
        (&done["state"], done["done"].as_u64(), done["failed"].as_u64()),
        (&json!("done"), Some(60), Some(0))
    );
    let left = client.get("/v1/workflow/executions?parked=true").await.expect(200);
    assert_eq!(left["items"].as_array().unwrap().len(), 5, "the others are not touched");
    let one = client.get(&path("cook-7")).await.expect(200);
    assert_eq!(one["outcome"]["output"], json!({"fixed": 1}));
    let mut resumed = 0;
    let mut query = "type=Execution%20Resumed&limit=200".to_owned();
    loop {
        let page = client.get(&format!("/v1/events?{query}")).await.expect(200);
        resumed += page["items"].as_array().unwrap().len();
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        query = format!("type=Execution%20Resumed&limit=200&cursor={cursor}");
    }
    assert_eq!(resumed, 60, "each once");
    // Named ones that are not parked are told, each once.
    let named = json!({"action": "resume", "filter": {"executionIds": ["lee-4", "cook-7", "nobody", "cook-7"]}, "dryRun": true});
    let preview = client.post("/v1/workflow/bulk", &named).await.expect(200);
    assert_eq!((&preview["total"], &preview["leftOut"]), (&json!(1), &json!(["cook-7", "nobody"])));
    // Only those with nothing left to mend: that is what it counts.
    client.post("/v1/workflow/errors/resolve", &json!({"executionId": "lee-3"})).await.expect(200);
    let settled =
        json!({"action": "resume", "filter": {"code": "31001", "settled": true}, "ratePerSecond": 1});
    let bulk = client.post("/v1/workflow/bulk", &settled).await.expect(202);
    assert_eq!((&bulk["state"], bulk["total"].as_u64()), (&json!("running"), Some(1)));
    let settling = format!("/v1/workflow/bulk/{}", bulk["id"].as_str().unwrap());
    let done = until(&client, &settling, |bulk| bulk["state"] != "running").await;
    let figures = ["total", "done", "failed", "skipped"].map(|name| done[name].as_u64().unwrap());
    assert_eq!(figures, [1, 1, 0, 4], "{done}");
    // Slowly, so that it can be stopped.
    let slow = json!({"action": "fail", "filter": {"executionIds": ["lee-0", "lee-1", "lee-2"]}, "ratePerSecond": 1});
    let bulk = client.post("/v1/workflow/bulk", &slow).await.expect(202);
    let own = format!("/v1/workflow/bulk/{}", bulk["id"].as_str().unwrap());
    until(&client, &own, |bulk| bulk["done"] == 1).await;
    let stopped = client.post(&format!("{own}/cancel"), &json!({})).await.expect(200);
    assert_eq!(stopped["state"], "cancelled");
    let left = client.get("/v1/workflow/executions?parked=true").await.expect(200);
    assert!(left["items"].as_array().unwrap().len() >= 2, "{left}");
    assert_eq!(client.get("/v1/workflow/bulk").await.expect(200)["items"].as_array().unwrap().len(), 3);
    let page = client.get("/v1/workflow/bulk?limit=1").await.expect(200);
    assert_eq!((page["items"].as_array().unwrap().len(), &page["items"][0]["id"]), (1, &bulk["id"]));
    let next = format!("/v1/workflow/bulk?limit=1&cursor={}", page["nextCursor"].as_str().unwrap());
    let page = client.get(&next).await.expect(200);
    assert_eq!(
        (&page["items"][0]["filter"]["settled"], page["items"][0]["action"].as_str()),
        (&json!(true), Some("resume"))
    );
    let next = format!("/v1/workflow/bulk?limit=1&cursor={}", page["nextCursor"].as_str().unwrap());
    let page = client.get(&next).await.expect(200);
    assert_eq!((page["items"][0]["total"].as_u64(), &page["nextCursor"]), (Some(60), &json!(null)));
    for nowhere in ["/v1/workflow/bulk/x", "/v1/workflow/bulk/0190a000-0000-7000-8000-000000000000"] {
        assert_eq!(client.get(nowhere).await.status, 404);
        assert_eq!(client.post(&format!("{nowhere}/cancel"), &json!({})).await.status, 404);
    }
}

#[tokio::test]
async fn we_25_the_metrics_count_errors_by_type() {
    let lab = Lab::start().await;
    let client = lab.local();
    publish(&client, &[failed("e1", "Cook", "SVL", &["20Cook", "20001", "20001", "31001"])]).await;
    client.post("/v1/workflow/errors/resolve", &json!({"errorCode": "31001"})).await.expect(200);
    let text = client.get("/metrics").await.text();
    for line in [
        "workflow_errors_total{type=\"20\"} 3",
        "workflow_errors_total{type=\"31\"} 1",
        "workflow_errors_open_gauge{type=\"20\"} 2",
        "workflow_errors_open_gauge{type=\"31\"} 0",
        "workflow_parked_gauge 1",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
}

#[tokio::test]
async fn we_26_workflow_events_are_events_like_others() {
    let lab = Lab::start().await;
    let client = lab.local();
    client.post("/v1/scripts", &json!({"id": "mend", "name": "mend", "source": ""})).await.expect(201);
    let wish = json!({
        "id": "failed", "scriptId": "mend", "eventType": "WorkflowEvent",
        "filterRules": {"status": "FAILED"},
    });
    client.post("/v1/subscriptions", &wish).await.expect(201);
    let accepted = publish(&client, &[failed("e1", "Cook", "SVL", &["31001"])]).await;
    let explained = client
        .post("/v1/scripts/explain", &json!({"eventId": accepted["events"][0]["eventId"]}))
        .await
        .expect(200);
    assert!(explained.to_string().contains("\"matched\""), "{explained}");
    assert!(!explained.to_string().contains("token-of"), "scripts see no token");
    // The ordinary way to publish takes them as well, with the same checks and the same effect.
    let event = |status: &str| {
        json!({"eventType": "WorkflowEvent", "properties": {
            "executionId": "e9", "county": "Lee", "status": status, "phase": "SVL", "step": "SVL",
            "taskToken": "secret-9", "errors": [{"code": "31001"}],
        }})
    };
    let answer = client.post("/v1/events", &event("LOST")).await;
    assert_eq!((answer.status, answer.problem().2.as_str()), (400, "properties.status"));
    client.post("/v1/events", &event("FAILED")).await.expect(202);
    assert_eq!(client.get(&path("e9")).await.expect(200)["parked"], true);
    assert!(!client.get("/v1/events").await.text().contains("secret-9"));
}
