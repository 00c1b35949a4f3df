//! A stage that was deployed to the double with the templates, and the ways to reach it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use aws_sdk_dynamodb::types::{AttributeValue, TimeToLiveSpecification};
use axum::body::Body;
use axum::http::{HeaderMap, Method, Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use crate::code::zip_of;
use crate::double::Double;
use crate::slack::Slack;

pub(crate) const TENANT: &str = "acme";
const REGION: &str = "us-east-1";
const TOKEN_KEY: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
/// The stacks in the order in which they are made, and whether they hold functions.
pub(crate) const STACKS: [(&str, &str, bool); 6] = [
    ("infrastructure", include_str!("../../../../deploy/aws/infrastructure.json"), false),
    ("event", include_str!("../../../../deploy/aws/event.json"), true),
    ("dispatcher", include_str!("../../../../deploy/aws/dispatcher.json"), true),
    ("health-check", include_str!("../../../../deploy/aws/health-check.json"), true),
    ("producer-api", include_str!("../../../../deploy/aws/producer-api.json"), true),
    ("consumer", include_str!("../../../../deploy/aws/consumer.json"), false),
];
/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Site {
    pub(crate) stage: &'static str,
    pub(crate) endpoint: String,
    pub(crate) dynamo: aws_sdk_dynamodb::Client,
    pub(crate) sqs: aws_sdk_sqs::Client,
    pub(crate) bus: aws_sdk_eventbridge::Client,
    /// Of all stacks.
    pub(crate) outputs: BTreeMap<String, String>,
    http: Client<HttpConnector, Body>,
}

pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error} in {}", self.text))
    }
}

impl Site {
    /// Makes all stacks of a stage, as a person would.
    pub(crate) async fn deploy(double: &Double, stage: &'static str, slack: &Slack) -> Self {
        let config = aws_config::defaults(aws_config::BehaviorVersion::latest())
            .http_client(aws_smithy_http_client::Builder::new().build_http())
            .endpoint_url(&double.endpoint)
            .region(aws_config::Region::new(REGION))
            .credentials_provider(aws_sdk_sqs::config::Credentials::new("test", "test", None, None, "double"))
            .load()
            .await;
        let mut site = Self {
            stage,
            endpoint: double.endpoint.clone(),
            dynamo: aws_sdk_dynamodb::Client::new(&config),
            sqs: aws_sdk_sqs::Client::new(&config),
            bus: aws_sdk_eventbridge::Client::new(&config),
            outputs: BTreeMap::new(),
            http: Client::builder(TokioExecutor::new()).build_http(),
        };
        let parameter = json!({
            "Name": format!("/brief/{stage}/slack-webhook-url"), "Value": slack.url, "Type": "String",
        });
        site.service("ssm", "AmazonSSM.PutParameter", &parameter).await;
        for (name, template, has_functions) in STACKS {
            site.make(name, template, has_functions).await;
            if name == "infrastructure" {
                site.furnish(&config).await;
            }
        }
        for function in [
            "dispatcher",
            "dlq-processor",
            "eventbridge-dlq-alert",
            "health-check",
            "producer-api",
            "reconcile",
        ] {
            site.let_batches(function).await;
        }
        site.let_batches("workflow-event").await;
        site
    }

    /// What the double does not do by itself, and the code.
    async fn furnish(&self, config: &aws_config::SdkConfig) {
        let secret = json!({ "SecretId": format!("task-workflow/{}/token-key", self.stage), "SecretString": TOKEN_KEY });
        self.service("secretsmanager", "secretsmanager.PutSecretValue", &secret).await;
        let ttl = TimeToLiveSpecification::builder().enabled(true).attribute_name("ttl").build();
        let update = self.dynamo.update_time_to_live().table_name(self.output("EventsTableName"));
        update
            .time_to_live_specification(ttl.expect("it is whole"))
            .send()
            .await
            .expect("the table is there");
        let s3 = aws_sdk_s3::config::Builder::from(config).force_path_style(true).build();
        let put = aws_sdk_s3::Client::from_conf(s3).put_object().bucket(self.output("ArtifactsBucketName"));
        put.key("lambda/code.zip")
            .body(zip_of(env!("CARGO_BIN_EXE_tidemill-lambda")).into())
            .send()
            .await
            .expect("the bucket is there");
    }

    async fn make(&mut self, name: &str, template: &str, has_functions: bool) {
        let stack = format!("task-workflow-{name}-{}", self.stage);
        let mut parameters = vec![("Stage", self.stage.to_owned())];
        if has_functions {
            parameters.extend([
                ("CodeBucket", self.output("ArtifactsBucketName").to_owned()),
                ("CodeKey", "lambda/code.zip".to_owned()),
                ("TenantId", TENANT.to_owned()),
            ]);
        }
        let mut form = vec![
            ("Action".to_owned(), "CreateStack".to_owned()),
            ("StackName".to_owned(), stack.clone()),
            ("TemplateBody".to_owned(), template.to_owned()),
            ("Capabilities.member.1".to_owned(), "CAPABILITY_IAM".to_owned()),
        ];
        for (at, (key, value)) in parameters.into_iter().enumerate() {
            form.push((format!("Parameters.member.{}.ParameterKey", at + 1), key.to_owned()));
            form.push((format!("Parameters.member.{}.ParameterValue", at + 1), value));
        }
        self.query("cloudformation", "2010-05-15", form).await;
        let made = eventually("the stack is made", async || {
            let form = [("Action", "DescribeStacks"), ("StackName", &stack)];
            let form = form.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
            let told = self.query("cloudformation", "2010-05-15", form).await;
            let status =
                between(&told, "<StackStatus>", "</StackStatus>").next().unwrap_or_default().to_owned();
            (!status.ends_with("IN_PROGRESS")).then_some((status, told))
        });
        let (status, told) = made.await;
        assert_eq!(status, "CREATE_COMPLETE", "{name}: {told}");
        let keys = between(&told, "<OutputKey>", "</OutputKey>");
        let values = between(&told, "<OutputValue>", "</OutputValue>");
        self.outputs.extend(keys.zip(values).map(|(key, value)| (key.to_owned(), value.to_owned())));
    }

    pub(crate) fn output(&self, name: &str) -> &str {
        self.outputs.get(name).unwrap_or_else(|| panic!("{name} is no output: {:?}", self.outputs))
    }

    /// The double takes a batch of messages for an action of its own. On AWS it is part of sending one.
    async fn let_batches(&self, function: &str) {
        let statement = json!({ "Effect": "Allow", "Action": "sqs:SendMessageBatch", "Resource": self.output("TaskQueueArn") });
        let policy = json!({ "Version": "2012-10-17", "Statement": [statement] }).to_string();
        let role = self.role_of(function).await;
        let form = [
            ("Action", "PutRolePolicy"),
            ("RoleName", &role),
            ("PolicyName", "batches"),
            ("PolicyDocument", &policy),
        ];
        self.query(
            "iam",
            "2010-05-08",
            form.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec(),
        )
        .await;
    }

    /// Gives a function one more setting.
    pub(crate) async fn set(&self, function: &str, name: &str, value: &str) {
        let path = format!("/2015-03-31/functions/{function}-{}/configuration", self.stage);
        let mut told = self.ask(Method::GET, &path, "lambda", &[], String::new()).await.json();
        let mut environment = told["Environment"].take();
        environment["Variables"][name] = json!(value);
        let change = json!({ "Environment": environment }).to_string();
        let answer = self.ask(Method::PUT, &path, "lambda", &[], change).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
    }

    /// The name of a function's role.
    pub(crate) async fn role_of(&self, function: &str) -> String {
        let path = format!("/2015-03-31/functions/{function}-{}/configuration", self.stage);
        let told = self.ask(Method::GET, &path, "lambda", &[], String::new()).await.json();
        told["Role"].as_str().and_then(|arn| arn.rsplit('/').next()).expect("it has a role").to_owned()
    }

    /// Invokes a function as the bus does: it is tried again, and what it fails at goes where its failures go.
    pub(crate) async fn invoke_later(&self, function: &str, event: &Value) {
        let path = format!("/2015-03-31/functions/{function}-{}/invocations", self.stage);
        let later = [("x-amz-invocation-type", "Event")];
        let answer = self.ask(Method::POST, &path, "lambda", &later, event.to_string()).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{}", answer.text);
    }

    /// Invokes a function and waits for its answer. The error is what it failed with.
    pub(crate) async fn invoke(&self, function: &str, event: &Value) -> Result<Value, Value> {
        let path = format!("/2015-03-31/functions/{function}-{}/invocations", self.stage);
        let answer = self.ask(Method::POST, &path, "lambda", &[], event.to_string()).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        if answer.headers.contains_key("x-amz-function-error") {
            Err(answer.json())
        } else {
            Ok(answer.json())
        }
    }

    /// Asks the API through its gateway.
    pub(crate) async fn api(&self, method: Method, path: &str, key: &str, body: Option<Value>) -> Answer {
        let url = self.output("ProducerApiUrl");
        let host = url.strip_prefix("http://").unwrap_or(url).to_owned();
        let authorization = format!("Bearer {key}");
        let request = Request::builder().method(method).uri(format!("{}{path}", self.endpoint));
        let request = request.header("host", host).header("authorization", authorization);
        let request = request.header("content-type", "application/json");
        self.send(request.body(Body::from(body.map(|body| body.to_string()).unwrap_or_default()))).await
    }

    pub(crate) async fn put_event(&self, source: &str, detail_type: &str, detail: &str) {
        let entry = aws_sdk_eventbridge::types::PutEventsRequestEntry::builder()
            .event_bus_name(self.output("EventBusName"))
            .source(source)
            .detail_type(detail_type)
            .detail(detail)
            .build();
        let put = self.bus.put_events().entries(entry).send().await.expect("the bus takes it");
        assert_eq!(put.failed_entry_count, 0, "{put:?}");
    }

    /// The stored events of an entity, such as `JOB#…`, by an index.
    pub(crate) async fn stored(&self, entity: &str) -> Vec<String> {
        let query = self.dynamo.query().table_name(self.output("EventsTableName")).index_name("GSI1-index");
        let query = query.key_condition_expression("GSI1PK = :pk");
        let query = query.expression_attribute_values(":pk", AttributeValue::S(entity.to_owned()));
        let found = query.send().await.expect("the table answers").items.unwrap_or_default();
        let text = |item: &std::collections::HashMap<String, AttributeValue>| {
            let kind = item.get("eventType").and_then(|kind| kind.as_s().ok()).cloned().unwrap_or_default();
            assert!(item.contains_key("receivedAt"), "{item:?}");
            kind
        };
        found.iter().map(text).collect()
    }

    /// A call of a service that takes JSON.
    pub(crate) async fn service(&self, service: &str, target: &str, body: &Value) -> Value {
        let headers = [("x-amz-target", target), ("content-type", "application/x-amz-json-1.1")];
        let answer = self.ask(Method::POST, "/", service, &headers, body.to_string()).await;
        assert_eq!(answer.status, StatusCode::OK, "{target}: {}", answer.text);
        answer.json()
    }

    /// A call of a service that takes forms.
    pub(crate) async fn query(&self, service: &str, version: &str, form: Vec<(String, String)>) -> String {
        let mut body = format!("Version={version}");
        for (name, value) in form {
            let _ = write!(body, "&{name}={}", escaped(&value));
        }
        let headers = [("content-type", "application/x-www-form-urlencoded")];
        let answer = self.ask(Method::POST, "/", service, &headers, body).await;
        assert_eq!(answer.status, StatusCode::OK, "{service}: {}", answer.text);
        answer.text
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        service: &str,
        headers: &[(&str, &str)],
        body: String,
    ) -> Answer {
        // The double looks at the caller's name, not at the signature.
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential=test/20260101/{REGION}/{service}/aws4_request, SignedHeaders=host, Signature=0"
        );
        let mut request = Request::builder().method(method).uri(format!("{}{path}", self.endpoint));
        request = request.header("authorization", authorization);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.send(request.body(Body::from(body))).await
    }

    async fn send(&self, request: Result<Request<Body>, axum::http::Error>) -> Answer {
        let request = request.expect("the request is whole");
        let answer = self.http.request(request).await.expect("the double answers");
        let (parts, body) = answer.into_parts();
        let body = axum::body::to_bytes(Body::new(body), usize::MAX).await.expect("the answer is whole");
        let text = String::from_utf8_lossy(&body).into_owned();
        Answer { status: parts.status, headers: parts.headers, text }
    }
}

/// Asks until there is an answer. What changes in the double tells nobody of it, so it is asked again and again.
pub(crate) async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = ask().await {
                return answer;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let answer = tokio::time::timeout(PATIENCE, asking).await;
    answer.unwrap_or_else(|_| panic!("not within {} s: {what}", PATIENCE.as_secs()))
}

fn between<'a>(text: &'a str, start: &'a str, end: &'a str) -> impl Iterator<Item = &'a str> {
    text.split(start).skip(1).filter_map(move |rest| rest.split(end).next())
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}
