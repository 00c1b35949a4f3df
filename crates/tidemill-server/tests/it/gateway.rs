//! The gateway as clients of AWS meet it: signed requests, and answers in the words of AWS.

use serde_json::{Value, json};
use tidemill_aws_wire::signature::{AmzDate, PayloadHash, RequestSigner, WireRequest};
use tidemill_engine::policy::Policy;
use tidemill_model::{Role, TenantId};
use tidemill_server::{GatewayNames, ServerConfig};

use crate::lab::{Answer, Client, Lab};

const EVENTS: (&str, &str) = ("events", "AWSEvents.PutEvents");

/// A client that signs as the SDKs of AWS do.
#[derive(Clone)]
struct Signer {
    client: Client,
    key: String,
    secret: String,
    /// How far its clock is ahead, in seconds.
    ahead_secs: i64,
}

impl Signer {
    async fn new(lab: &Lab, tenants: &[&str], role: Role) -> Self {
        let tenants = tenants.iter().map(|tenant| TenantId::new(tenant).unwrap()).collect();
        let (_, token) = lab.engine.create_signing_key(tenants, role, None).await.unwrap();
        let (key, secret) = (token.id().to_string(), token.secret().to_owned());
        Self { client: Client { token: None, ..lab.local() }, key, secret, ahead_secs: 0 }
    }

    /// Calls an operation with what is signed, and sends `sent` as the body.
    async fn call(&self, (service, target): (&str, &str), signed: &str, sent: &str, now_secs: u64) -> Answer {
        let at = AmzDate::of_epoch_secs(now_secs.saturating_add_signed(self.ahead_secs));
        let (host, date) = (self.client.address.to_string(), at.to_string());
        let headers = [
            ("content-type", "application/x-amz-json-1.1"),
            ("host", host.as_str()),
            ("x-amz-date", date.as_str()),
            ("x-amz-target", target),
        ];
        let bytes: Vec<(&str, &[u8])> =
            headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
        let request = WireRequest { method: "POST", path: "/", query: "", headers: &bytes };
        let key =
            RequestSigner { access_key_id: &self.key, secret: &self.secret, region: "eu-west-1", service };
        let authorization = key.authorization(&request, PayloadHash::of_body(signed.as_bytes()), at).unwrap();
        let mut headers: Vec<_> = headers.iter().copied().filter(|(name, _)| *name != "host").collect();
        headers.push(("authorization", &authorization));
        self.client.send("POST", "/", &headers, sent.as_bytes()).await
    }

    async fn put_events(&self, lab: &Lab, entries: &Value) -> Answer {
        let body = json!({"Entries": entries}).to_string();
        self.call(EVENTS, &body, &body, lab.engine.now().millis() / 1_000).await
    }
}

async fn lab() -> Lab {
    let config = ServerConfig { gateway: Some(GatewayNames::default()), ..ServerConfig::default() };
    Lab::with(config, Policy::default()).await
}

/// An event as the documents' senders put it on the bus.
fn entry(tenant: &str, id: &str, event_type: &str, millis: u64, number: u32, properties: &Value) -> Value {
    let detail = json!({
        "PK": format!("TENANT#{tenant}"),
        "SK": format!("TIMESTAMP#{millis}#EVENT#ddf71f63-b036-4ac7-ad0f-{number:012x}"),
        "GSI1PK": format!("TASK#{id}"),
        "GSI2PK": "APP#legacy",
        "entityId": id,
        "entityType": "TASK",
        "tenantId": tenant,
        "eventType": event_type,
        "timestamp": millis,
        "context": {"source": "legacy", "workerId": "their-1"},
        "colour": "blue",
        "properties": properties,
    });
    json!({
        "EventBusName": "default",
        "Source": "task-workflow.legacy",
        "DetailType": "log-event",
        "Detail": detail.to_string(),
    })
}

fn refused(answer: &Answer) -> (u16, String) {
    let body = answer.json();
    let code = body["__type"].as_str().unwrap_or_default().rsplit('#').next().unwrap_or_default().to_owned();
    (answer.status, code)
}

#[tokio::test]
async fn events_that_are_put_are_stored_as_they_were_sent() {
    let lab = lab().await;
    let sender = Signer::new(&lab, &["acme"], Role::Producer).await;
    let now = lab.engine.now().millis();
    let one = entry("acme", "t-1", "Task Pending", now, 1, &json!({"requestId": "t-1", "name": "scrape"}));
    let other = json!({"Source": "shop", "DetailType": "order.paid", "Detail": "{\"total\": 7}"});
    let answer = sender.put_events(&lab, &json!([one, other])).await;
    assert!(answer.header("date").is_some_and(|date| date.ends_with(" GMT")), "{:?}", answer.headers);
    assert!(answer.header("x-amzn-requestid").is_some_and(|id| id.len() == 36));
    let body = answer.expect(200);
    assert_eq!(body["FailedEntryCount"], 0, "{body}");
    assert_eq!(body["Entries"][0]["EventId"], "ddf71f63-b036-4ac7-ad0f-000000000001");

    let reader = lab.key("acme", Role::Reader).await;
    let found = reader.get("/v1/events?entity=TASK/t-1").await.expect(200);
    let event = &found["items"][0];
    assert_eq!((&event["eventType"], &event["timestamp"]), (&json!("Task Pending"), &json!(now)));
    let paid = reader.get("/v1/events?type=order.paid").await.expect(200);
    assert_eq!(paid["items"][0]["properties"], json!({"total": 7}));
    // The same again changes nothing.
    let again = sender.put_events(&lab, &json!([one])).await.expect(200);
    assert_eq!(again["FailedEntryCount"], 0);
    let found = reader.get("/v1/events?entity=TASK/t-1").await.expect(200);
    assert_eq!(found["items"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn entries_stand_alone_and_say_what_is_wrong() {
    let lab = lab().await;
    let sender = Signer::new(&lab, &["acme"], Role::Producer).await;
    let now = lab.engine.now().millis();
    let mut foreign_bus = entry("acme", "t-1", "Task Pending", now, 1, &json!({}));
    foreign_bus["EventBusName"] = json!("other");
    let entries = json!([
        entry("rest", "t-1", "Task Pending", now, 2, &json!({})),
        {"Source": "s", "DetailType": "log-event", "Detail": "[1]"},
        {"Source": "s", "DetailType": "log-event", "Detail": "{\"PK\":\"TENANT#acme\"}"},
        {"Source": "s", "DetailType": "Job anything", "Detail": "{}"},
        entry("acme", "job-00000000000000000000000000000001_a", "Task Completed", now, 3, &json!({})),
        foreign_bus,
        entry("acme", "t-2", "Task Pending", now, 4, &json!({"requestId": "t-2"})),
    ]);
    let body = sender.put_events(&lab, &entries).await.expect(200);
    let codes: Vec<&str> = body["Entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["ErrorCode"].as_str().unwrap_or(""))
        .collect();
    let invalid = "InvalidArgument";
    let expected = ["AccessDeniedException", "MalformedDetail", invalid, invalid, invalid, invalid, ""];
    assert_eq!(codes, expected, "{body}");
    assert_eq!(body["FailedEntryCount"], 6);
    let why = body["Entries"][2]["ErrorMessage"].as_str().unwrap();
    assert!(why.contains("SK"), "{why}");
    for tenant in ["acme", "rest"] {
        let reader = lab.key(tenant, Role::Reader).await;
        let count = reader.get("/v1/events").await.expect(200)["items"].as_array().unwrap().len();
        assert_eq!(count, usize::from(tenant == "acme"), "only what was taken is there");
    }
    let many = json!(vec![json!({"Source": "s", "DetailType": "t", "Detail": "{}"}); 11]);
    let answer = sender.put_events(&lab, &many).await;
    assert_eq!(refused(&answer), (400, "ValidationException".to_owned()));
}

#[tokio::test]
async fn a_worker_of_another_system_runs_a_task_by_its_events() {
    let lab = lab().await;
    let worker = Signer::new(&lab, &["acme"], Role::Worker).await;
    let admin = lab.key("acme", Role::Admin).await;
    admin.define("scrape").await;
    admin.post("/v1/tasks", &json!({"requestId": "t-1", "name": "scrape"})).await.expect(202);
    let now = || lab.engine.now().millis();
    let put = async |event_type: &str, number: u32, properties: Value| {
        let entry = entry("acme", "t-1", event_type, now(), number, &properties);
        worker.put_events(&lab, &json!([entry])).await.expect(200)["Entries"][0].clone()
    };
    let until = json!({"effectiveUntil": now() + 45_000});
    assert_eq!(put("Task Processing Started", 1, until).await["ErrorCode"], Value::Null);
    let shown = admin.get("/v1/tasks/t-1").await.expect(200);
    assert_eq!(shown["status"], "processing", "{shown}");
    assert_eq!(put("Task Completed", 2, json!({"output": {"n": 7}})).await["ErrorCode"], Value::Null);
    let shown = admin.get("/v1/tasks/t-1").await.expect(200);
    assert_eq!((&shown["status"], &shown["output"]), (&json!("completed"), &json!({"n": 7})), "{shown}");
    let again = put("Task Failed", 3, json!({"error": "late"})).await;
    assert!(again["ErrorMessage"].as_str().is_some_and(|text| text.contains("TASK_ENDED")), "{again}");
}

#[tokio::test]
async fn the_door_is_closed_in_the_words_of_the_service() {
    let lab = lab().await;
    let good = Signer::new(&lab, &["acme"], Role::Producer).await;
    let now_secs = lab.engine.now().millis() / 1_000;
    let body = "{}";
    let services = [
        (EVENTS, false),
        (("dynamodb", "DynamoDB_20120810.Query"), false),
        (("states", "AWSStepFunctions.SendTaskSuccess"), false),
        (("sqs", "AmazonSQS.SendMessage"), true),
    ];
    let (_, plain) =
        lab.engine.create_key(vec![TenantId::trusted("acme")], Role::Producer, None).await.unwrap();
    let (revoked, gone) =
        lab.engine.create_signing_key(vec![TenantId::trusted("acme")], Role::Producer, None).await.unwrap();
    lab.engine.revoke_key(&revoked.id).await.unwrap();
    for (service, is_sqs) in services {
        let code =
            |json: &str, sqs: &str| if is_sqs { (403, sqs.to_owned()) } else { (400, json.to_owned()) };
        let unknown = code("UnrecognizedClientException", "InvalidClientTokenId");
        let wrong = code("InvalidSignatureException", "SignatureDoesNotMatch");
        for (name, signer, sent, expected) in [
            ("an unknown key", Signer { key: "AAAAAAAAAAAA".to_owned(), ..good.clone() }, body, &unknown),
            (
                "a key that does not sign",
                Signer { key: plain.id().to_string(), secret: plain.secret().to_owned(), ..good.clone() },
                body,
                &unknown,
            ),
            (
                "a revoked key",
                Signer { key: gone.id().to_string(), secret: gone.secret().to_owned(), ..good.clone() },
                body,
                &unknown,
            ),
            ("another secret", Signer { secret: "x".repeat(43), ..good.clone() }, body, &wrong),
            ("yesterday", Signer { ahead_secs: -86_400, ..good.clone() }, body, &wrong),
            ("a clock ahead", Signer { ahead_secs: 16 * 60, ..good.clone() }, body, &wrong),
            ("another body", good.clone(), "{\"a\":1}", &wrong),
        ] {
            let answer = signer.call(service, body, sent, now_secs).await;
            assert_eq!(refused(&answer), *expected, "{name} at {service:?}");
        }
        let other = if is_sqs { "events" } else { "sqs" };
        let answer = good.call((other, service.1), body, body, now_secs).await;
        assert_eq!(refused(&answer), wrong, "signed for another service than {service:?}");
        let unsigned = good.client.send("POST", "/", &[("x-amz-target", service.1)], b"{}").await;
        assert_eq!(refused(&unsigned), code("MissingAuthenticationTokenException", "AccessDenied"));
    }
    let reader = Signer::new(&lab, &["acme"], Role::Reader).await;
    let answer = reader.put_events(&lab, &json!([])).await;
    assert_eq!(refused(&answer), (400, "AccessDeniedException".to_owned()));
    let unknown = good.call(("events", "AWSEvents.PutRule"), body, body, now_secs).await;
    assert_eq!(refused(&unknown), (400, "UnknownOperationException".to_owned()));
    let huge = "x".repeat(17 * 1024 * 1024);
    let answer = good.call(EVENTS, &huge, &huge, now_secs).await;
    assert_eq!(refused(&answer), (413, "RequestEntityTooLargeException".to_owned()));
    assert_eq!(lab.key("acme", Role::Reader).await.get("/v1/events").await.expect(200)["items"], json!([]));
}

#[tokio::test]
async fn without_keys_any_signature_is_taken_from_this_machine() {
    let lab = lab().await;
    let anybody =
        Signer { client: lab.local(), key: "test".to_owned(), secret: "test".to_owned(), ahead_secs: 0 };
    let entry = json!({"Source": "shop", "DetailType": "order.paid", "Detail": "{}"});
    let body = anybody.put_events(&lab, &json!([entry])).await.expect(200);
    assert_eq!(body["FailedEntryCount"], 0, "{body}");
    let unsigned = lab.local().send("POST", "/", &[("x-amz-target", EVENTS.1)], b"{}").await;
    assert_eq!(refused(&unsigned), (400, "MissingAuthenticationTokenException".to_owned()));
    let authorization = "AWS4-HMAC-SHA256 Credential=a/20260101/eu-west-1/events/aws4_request, \
                         SignedHeaders=host;x-amz-date, Signature=00";
    let page = [
        ("authorization", authorization),
        ("x-amz-date", "20260101T000000Z"),
        ("x-amz-target", EVENTS.1),
        ("origin", "https://elsewhere.example"),
    ];
    let answer = lab.local().send("POST", "/", &page, b"{\"Entries\":[]}").await;
    assert_eq!(refused(&answer), (400, "AccessDeniedException".to_owned()), "a page of another site");
}

#[tokio::test]
async fn a_server_without_the_gateway_does_not_know_such_requests() {
    let lab = Lab::start().await;
    let sender = Signer::new(&lab, &["acme"], Role::Producer).await;
    let answer = sender.put_events(&lab, &json!([])).await;
    assert_eq!(
        (answer.status, answer.header("x-amzn-requestid")),
        (303, None),
        "people are sent to the login"
    );
}

#[tokio::test]
async fn a_caller_learns_who_it_is() {
    let lab = lab().await;
    let signer = Signer::new(&lab, &["acme"], Role::Reader).await;
    let now_secs = lab.engine.now().millis() / 1_000;
    let at = AmzDate::of_epoch_secs(now_secs);
    let (host, date) = (signer.client.address.to_string(), at.to_string());
    let body = "Action=GetCallerIdentity&Version=2011-06-15";
    let form = "application/x-www-form-urlencoded; charset=utf-8";
    let headers = [("content-type", form), ("host", host.as_str()), ("x-amz-date", date.as_str())];
    let bytes: Vec<(&str, &[u8])> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    let request = WireRequest { method: "POST", path: "/", query: "", headers: &bytes };
    let key = RequestSigner {
        access_key_id: &signer.key,
        secret: &signer.secret,
        region: "us-east-1",
        service: "sts",
    };
    let authorization = key.authorization(&request, PayloadHash::of_body(body.as_bytes()), at).unwrap();
    let sent = [("content-type", form), ("x-amz-date", date.as_str()), ("authorization", &authorization)];
    let answer = signer.client.send("POST", "/", &sent, body.as_bytes()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.text().contains(&format!("<Arn>arn:aws:iam::000000000000:user/{}</Arn>", signer.key)));
}
