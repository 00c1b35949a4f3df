//! How long the first invocation takes, from the start of the process. With `--release --nocapture` it tells the figures that
//! count.

use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::routing::{get, post};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::double::{RUNTIME, strict_double};
use crate::site::{Site, TENANT};
use crate::slack::Slack;

/// How long it may take on a slow machine, unoptimised.
const LIMIT: Duration = Duration::from_secs(30);

/// The other side of the runtime's interface, with one invocation.
struct Side {
    started: Instant,
    event: Mutex<Option<String>>,
    asked: Mutex<Option<Duration>>,
    answer: watch::Sender<Option<(Duration, String)>>,
}

impl Side {
    fn answered(&self, what: &str, body: &str) -> StatusCode {
        self.answer.send_replace(Some((self.started.elapsed(), format!("{what} {body}"))));
        StatusCode::ACCEPTED
    }
}

async fn next(State(side): State<Arc<Side>>) -> (HeaderMap, String) {
    let event = side.event.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(event) = event else { return std::future::pending().await };
    *side.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(side.started.elapsed());
    let id = HeaderValue::from_static("request-1");
    (HeaderMap::from_iter([("lambda-runtime-aws-request-id".parse().expect("a name"), id)]), event)
}

/// Starts the binary for one invocation: its answer, and how long it took to ask and to answer.
async fn invoke(environment: &[(&str, &str)], event: &Value) -> (String, Duration, Duration) {
    let side = Arc::new(Side {
        started: Instant::now(),
        event: Mutex::new(Some(event.to_string())),
        asked: Mutex::default(),
        answer: watch::Sender::new(None),
    });
    let base = "/2018-06-01/runtime";
    let respond = |what: &'static str| {
        post(move |State(side): State<Arc<Side>>, body: String| async move { side.answered(what, &body) })
    };
    let router = Router::new()
        .route(&format!("{base}/invocation/next"), get(next))
        .route(&format!("{base}/invocation/request-1/response"), respond("response"))
        .route(&format!("{base}/invocation/request-1/error"), respond("error"))
        .route(&format!("{base}/init/error"), respond("start"))
        .with_state(Arc::clone(&side));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
    let address = listener.local_addr().expect("it is bound").to_string();
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let process = Command::new(env!("CARGO_BIN_EXE_tidemill-lambda"))
        .env_remove("AWS_CA_BUNDLE")
        .envs(environment.iter().copied())
        .env("AWS_LAMBDA_RUNTIME_API", address)
        .stderr(Stdio::null())
        .spawn();
    let process = Ended(process.expect("the binary starts"));
    let mut answers = side.answer.subscribe();
    let answer = tokio::time::timeout(LIMIT, answers.wait_for(Option::is_some)).await;
    let (took, text) =
        answer.expect("it answers in time").expect("it is there").clone().expect("there is one");
    drop(process);
    serving.abort();
    let asked = side.asked.lock().unwrap_or_else(PoisonError::into_inner).unwrap_or_default();
    (text, asked, took)
}

/// Ends with its handle.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn what_is_set_wrong_is_told_to_the_runtime() {
    RUNTIME.block_on(async {
        for (environment, told) in [
            (&[("_HANDLER", "sweeper")][..], "_HANDLER is `sweeper`, which is no function"),
            (&[("_HANDLER", "save-event")], "DYNAMODB_EVENTS_TABLE_NAME is not set"),
            (&[("_HANDLER", "reconcile"), ("S3_BUCKET", "b")], "EVENTBRIDGE_BUS_NAME is not set"),
        ] {
            let (text, _, _) = invoke(environment, &json!({})).await;
            assert!(text.starts_with("start ") && text.contains(told), "{text}");
        }
    });
}

#[test]
fn a_first_invocation_is_answered() {
    let Some(double) = strict_double() else { return };
    RUNTIME.block_on(async {
        let slack = Slack::start().await;
        let site = Site::deploy(double, "cold", &slack).await;
        let environment = |role: &'static str| {
            [
                ("_HANDLER", role),
                ("AWS_ENDPOINT_URL", &site.endpoint),
                ("AWS_REGION", "us-east-1"),
                ("AWS_ACCESS_KEY_ID", "test"),
                ("AWS_SECRET_ACCESS_KEY", "test"),
                ("NODE_ENV", "cold"),
                ("TENANT_ID", TENANT),
                ("DYNAMODB_EVENTS_TABLE_NAME", site.output("EventsTableName")),
                ("EVENTBRIDGE_BUS_NAME", site.output("EventBusName")),
                ("S3_BUCKET", site.output("ArtifactsBucketName")),
                ("SQS_QUEUE_URL", site.output("TaskQueueUrl")),
            ]
        };
        let request = json!({ "rawPath": "/healthz", "requestContext": { "http": { "method": "GET" } } });
        let tick = json!({ "detail-type": "Scheduled Event", "detail": {} });
        for (role, event, expected) in [
            (
                "save-event",
                &tick,
                "error {\"errorMessage\":\"the store is damaged: what came from the bus is no event",
            ),
            ("producer-api", &request, "response {\"statusCode\":401"),
            ("reconcile", &tick, "response {\"done\":"),
        ] {
            let (text, asked, took) = invoke(&environment(role), event).await;
            assert!(text.starts_with(expected), "{text}");
            eprintln!("{role}: asks after {} ms, answers after {} ms", asked.as_millis(), took.as_millis());
        }
    });
}
