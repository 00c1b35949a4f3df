//! A whole stage, deployed by the command line: six stacks, functions that are the real binary, and processes beside them that
//! may do no more than the policies of the stage let them.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::code::zip_of;
use super::double::{fresh_name, strict_double};
use super::home::{SHORT, TOKEN_KEY, access};
use crate::sandbox::{Ran, Running, Sandbox, eventually};

const SLACK: &str = "http://127.0.0.1:1/hook";

/// The functions' binary beside ours, which `cargo build -p tidemill-lambda` makes, or a note that it is not there.
fn functions() -> Option<PathBuf> {
    let path = Path::new(env!("CARGO_BIN_EXE_tidemill")).with_file_name("tidemill-lambda");
    if !path.exists() {
        crate::parts::skip("tidemill-lambda is not built (cargo build -p tidemill-lambda)");
        return None;
    }
    Some(path)
}

/// A stage, and the credentials that deploy it.
struct Site {
    sandbox: Sandbox,
    endpoint: String,
    stage: String,
    access: Vec<(String, String)>,
}

impl Site {
    fn new() -> Option<Self> {
        let endpoint = strict_double()?.endpoint.clone();
        let program = functions()?;
        let sandbox = Sandbox::new();
        std::fs::write(sandbox.dir.join("code.zip"), zip_of(program.to_str().unwrap())).unwrap();
        Some(Self { sandbox, access: access(&endpoint), endpoint, stage: fresh_name() })
    }

    fn aws(&self, arguments: &[&str]) -> Ran {
        let arguments = [&["aws", "--stage", &self.stage], arguments].concat();
        self.run(&arguments)
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        let access: Vec<_> =
            self.access.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        self.sandbox.run_with(arguments, &access)
    }

    /// A process of the stage, with the key of somebody.
    fn start(&self, arguments: &[&str], key: &(String, String), ready: &str) -> Running {
        let mut environment: Vec<(&str, &str)> = SHORT.to_vec();
        environment.extend([
            ("AWS_ENDPOINT_URL", self.endpoint.as_str()),
            ("AWS_ACCESS_KEY_ID", &key.0),
            ("AWS_SECRET_ACCESS_KEY", &key.1),
            ("TOKEN_KEY", TOKEN_KEY),
        ]);
        let mut process = self.sandbox.start(arguments, &environment);
        process.wait_for(ready);
        process
    }

    /// The changes that a plan tells, stack by stack.
    fn changes(&self, more: &[&str]) -> Vec<String> {
        let plan = self.aws(&[&["plan", "--json"], more].concat()).ok().json();
        let stacks = plan["stacks"].as_array().unwrap();
        stacks.iter().map(|stack| stack["change"].as_str().unwrap().to_owned()).collect()
    }

    /// A request of a service, as its SDKs make it. The double looks at the caller's name, not at the signature.
    fn ask(&self, method: &str, path: &str, service: &str, headers: &str, body: &str) -> String {
        let host = self.endpoint.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(host).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\nAuthorization: AWS4-HMAC-SHA256 \
             Credential=test/20261116/us-east-1/{service}/aws4_request, SignedHeaders=host, Signature=0\r\nContent-Length: \
             {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200"), "{path} {service}: {answer}");
        body.to_owned()
    }

    fn json(&self, service: &str, target: &str, body: &Value) -> String {
        let headers = format!("X-Amz-Target: {target}\r\nContent-Type: application/x-amz-json-1.1");
        self.ask("POST", "/", service, &headers, &body.to_string())
    }

    fn iam(&self, form: &[(&str, &str)]) -> String {
        let escaped = |text: &str| {
            text.bytes().fold(String::new(), |mut out, byte| {
                if byte.is_ascii_alphanumeric() {
                    out.push(char::from(byte));
                } else {
                    let _ = write!(out, "%{byte:02X}");
                }
                out
            })
        };
        let fields: Vec<_> = form.iter().map(|(name, value)| format!("{name}={}", escaped(value))).collect();
        let body = format!("Version=2010-05-08&{}", fields.join("&"));
        self.ask("POST", "/", "iam", "Content-Type: application/x-www-form-urlencoded", &body)
    }

    /// The variables of a function.
    fn variables(&self, function: &str) -> Value {
        let path = format!("/2015-03-31/functions/{function}-{}/configuration", self.stage);
        let told: Value = serde_json::from_str(&self.ask("GET", &path, "lambda", "Accept: */*", "")).unwrap();
        told["Environment"]["Variables"].clone()
    }

    /// The double takes batches for actions of their own. On AWS they are part of the single ones.
    fn let_batches(&self, target: &[(&str, &str)]) {
        let actions = ["SendMessage", "DeleteMessage", "ChangeMessageVisibility"];
        let actions = actions.map(|action| format!("sqs:{action}Batch"));
        let statement = json!({ "Effect": "Allow", "Action": actions, "Resource": "*" });
        let policy = json!({ "Version": "2012-10-17", "Statement": [statement] }).to_string();
        let document = [("PolicyName", "batches"), ("PolicyDocument", policy.as_str())];
        self.iam(&[target, &document].concat());
    }

    /// A user with these policies of the stage: the key.
    fn user(&self, name: &str, exports: &[&str]) -> (String, String) {
        let name = format!("{name}-{}", self.stage);
        self.iam(&[("Action", "CreateUser"), ("UserName", &name)]);
        for export in exports {
            let arn = self.export(export);
            self.iam(&[("Action", "AttachUserPolicy"), ("UserName", &name), ("PolicyArn", &arn)]);
        }
        self.let_batches(&[("Action", "PutUserPolicy"), ("UserName", &name)]);
        let told = self.iam(&[("Action", "CreateAccessKey"), ("UserName", &name)]);
        (between(&told, "AccessKeyId"), between(&told, "SecretAccessKey"))
    }

    fn export(&self, name: &str) -> String {
        let body = "Version=2010-05-15&Action=ListExports";
        let headers = "Content-Type: application/x-www-form-urlencoded";
        let told = self.ask("POST", "/", "cloudformation", headers, body);
        let name = format!("<Name>{name}-{}</Name>", self.stage);
        let export = told.split("<member>").find(|export| export.contains(&name));
        between(export.unwrap_or_else(|| panic!("{name}: {told}")), "Value")
    }
}

fn between(text: &str, tag: &str) -> String {
    let rest = text.split_once(&format!("<{tag}>")).unwrap_or_else(|| panic!("{tag}: {text}")).1;
    rest.split_once('<').unwrap().0.to_owned()
}

/// A stage is deployed as its page says, after a first try that fails; all of it is found well; a worker and a server with the
/// rights of the stage run a job that came through the gateway.
#[test]
fn a_whole_stage_is_deployed_and_works() {
    let Some(site) = Site::new() else { return };
    site.aws(&["deploy", "--only", "infrastructure"]).ok();
    // What the double does not do by itself: the alphabet of a generated secret, and time to live.
    let secret =
        json!({ "SecretId": format!("task-workflow/{}/token-key", site.stage), "SecretString": TOKEN_KEY });
    site.json("secretsmanager", "secretsmanager.PutSecretValue", &secret);
    let ttl = json!({ "TableName": format!("events-{}", site.stage), "TimeToLiveSpecification": { "Enabled": true, "AttributeName": "ttl" } });
    site.json("dynamodb", "DynamoDB_20120810.UpdateTimeToLive", &ttl);

    let lacks = site.aws(&["plan"]);
    assert!(lacks.code == 2 && lacks.words.contains("--code FILE"), "{lacks:#?}");
    let parameters = ["--code", "code.zip", "--parameter", "TenantId=acme"];
    let deploy = || site.aws(&[&["deploy"], &parameters[..]].concat());
    let failed = deploy();
    assert!(failed.code == 1 && failed.words.contains("slack-webhook-url"), "nobody said where: {failed:#?}");
    assert_eq!(site.changes(&parameters)[..2], ["none", "again"]);
    let hook = json!({ "Name": format!("/brief/{}/slack-webhook-url", site.stage), "Value": SLACK, "Type": "String" });
    site.json("ssm", "AmazonSSM.PutParameter", &hook);
    let made = deploy().ok();
    assert_eq!(made.words.matches(": made").count(), 5, "{made:#?}");
    assert!(made.words.contains(&format!("are at {}", site.export("producer-api-url"))), "{made:#?}");
    assert_eq!(site.changes(&parameters), ["none"; 6]);
    // What nobody gives stays as it is, secrets too, which nobody is told.
    site.aws(&["deploy", "--parameter", "LogRetentionDays=60"]).ok();
    for function in ["reconcile", "health-check", "eventbridge-dlq-alert"] {
        let variables = site.variables(function);
        assert_eq!(
            (&variables["SLACK_WEBHOOK_URL"], &variables["SLACK_BOT_TOKEN"]),
            (&json!(SLACK), &Value::Null)
        );
    }

    let report = site.aws(&["doctor", "--json"]).ok().json();
    for check in report["checks"].as_array().unwrap() {
        assert_eq!(check["verdict"], "OK", "{report}");
    }
    assert!(report["checks"].as_array().unwrap().len() >= 9, "{report}");
    let lines = site.aws(&["env"]).ok().out;
    assert!(lines.contains("TENANT_ID=acme\n") && lines.contains("APP_NAME=task-workflow\n"), "{lines}");
    site.sandbox.write(".env", &lines);

    for function in ["dispatcher", "dlq-processor", "producer-api", "reconcile"] {
        let path = format!("/2015-03-31/functions/{function}-{}/configuration", site.stage);
        let told: Value = serde_json::from_str(&site.ask("GET", &path, "lambda", "Accept: */*", "")).unwrap();
        let role = told["Role"].as_str().unwrap().rsplit('/').next().unwrap();
        site.let_batches(&[("Action", "PutRolePolicy"), ("RoleName", role)]);
    }
    let key = site.run(&["keys", "create", "--role", "admin"]).ok().out.trim().to_owned();
    let gateway = site.export("producer-api-url");
    let api = gateway.split("//").nth(1).unwrap().split('.').next().unwrap();
    let server = format!("{}/_aws/execute-api/{api}/$default", site.endpoint);
    let through = |arguments: &[&str]| {
        let environment =
            [("TIDEMILL_BACKEND", "embedded"), ("TIDEMILL_SERVER", &server), ("TIDEMILL_API_KEY", &key)];
        site.sandbox.run_with(arguments, &environment)
    };
    let worker = site.user("worker", &["consumer-policy-arn"]);
    // Tasks have the rights of their worker: they cannot change the functions.
    let (bucket, user) = (
        site.export("artifacts-bucket-arn"),
        format!("arn:aws:iam::000000000000:user/worker-{}", site.stage),
    );
    for (key, decision) in [("tenants/acme/x", "allowed"), ("lambda/x.zip", "explicitDeny")] {
        let told = site.iam(&[
            ("Action", "SimulatePrincipalPolicy"),
            ("PolicySourceArn", &user),
            ("ActionNames.member.1", "s3:PutObject"),
            ("ResourceArns.member.1", &format!("{bucket}/{key}")),
        ]);
        assert_eq!(between(&told, "EvalDecision"), decision, "{key}: {told}");
    }
    // A user who may not look at everything gets a warning, which is no fault of the stage.
    let own = [
        ("AWS_ENDPOINT_URL", site.endpoint.as_str()),
        ("AWS_ACCESS_KEY_ID", &worker.0),
        ("AWS_SECRET_ACCESS_KEY", &worker.1),
    ];
    let looked = site.sandbox.run_with(&["aws", "doctor", "--json"], &own).ok().json();
    let table = &looked["checks"][0];
    assert_eq!((&table["check"], &table["verdict"]), (&json!("table"), &json!("WARN")), "{looked}");
    assert!(table["found"].as_str().unwrap().contains("may not be looked at"), "{looked}");
    let worker = site.start(&["worker"], &worker, "working for ");
    let (id, secret) = site.user("server", &["consumer-policy-arn", "server-policy-arn"]);
    let keeper = site.start(&["serve", "--roles", "timers,courier"], &(id, secret), "serving the table ");
    // A check of health while something runs: the function reads the latest event of each task.
    let held =
        "name: held\ntasks:\n- {taskId: a, run: 'touch runs; while [ ! -e go ]; do sleep 0.05; done'}\n";
    site.sandbox.write("held.yaml", held);
    let held = through(&["submit", "held.yaml"]).ok().out.trim().to_owned();
    eventually("that it runs", || site.sandbox.dir.join("runs").exists());
    let path = format!("/2015-03-31/functions/health-check-{}/invocations", site.stage);
    let tick = r#"{"source":"aws.events","detail-type":"Scheduled Event","detail":{}}"#;
    let checked = site.ask("POST", &path, "lambda", "Content-Type: application/json", tick);
    assert!(checked.contains(r#""tenants""#), "{checked}");
    site.sandbox.write("go", "");
    through(&["jobs", "watch", &held]).ok();
    site.sandbox.write("job.yaml", "name: small\ntasks:\n- {taskId: a, run: 'echo \"{\\\"n\\\":1}\"'}\n- {taskId: b, run: 'cat \"$INPUT_FILE\"', dependsOn: [a]}\n");
    let report = through(&["submit", "job.yaml", "--watch", "--json"]).ok().json();
    assert_eq!(report["status"], "completed", "{report}");
    assert_eq!(report["tasks"]["b"]["output"]["dependencyOutputs"]["a"], json!({ "n": 1 }), "{report}");
    let job = report["jobId"].as_str().unwrap();
    // What is in the table came over the bus, through the function that stores it.
    eventually("that its events are stored", || {
        let found = through(&["events", "query", "--entity", &format!("JOB/{job}"), "--json"]).ok().json();
        found["items"].as_array().unwrap().len() == 2
    });
    let duty = json!({ "TableName": format!("events-{}", site.stage), "Key": { "PK": { "S": "DUTY#0" }, "SK": { "S": "timers" } } });
    let holder = || site.json("dynamodb", "DynamoDB_20120810.GetItem", &duty);
    let is_free = || holder().contains(r#""heldUntil": {"N": "0"}"#);
    assert!(holder().contains("holder") && !is_free(), "{}", holder());
    for process in [worker, keeper] {
        process.signal(Signal::TERM);
        process.end().ok();
    }
    assert!(is_free(), "a server gives back what it has: {}", holder());
}

/// Alerts by a bot: no webhook is asked for, and the token outlives deployments that do not name it.
#[test]
fn a_stage_with_a_bot_needs_no_webhook_and_keeps_its_token() {
    let Some(site) = Site::new() else { return };
    site.aws(&["deploy", "--only", "infrastructure"]).ok();
    let deploy = |more: &[&str]| {
        let base = ["deploy", "--only", "event", "--code", "code.zip", "--parameter", "TenantId=acme"];
        site.aws(&[&base[..], more].concat()).ok()
    };
    deploy(&["--parameter", "SlackBotToken=xoxb-1", "--parameter", "AlertChannel=#ops"]);
    deploy(&["--parameter", "AlertChannel=#other"]);
    let variables = site.variables("eventbridge-dlq-alert");
    let told = ["SLACK_BOT_TOKEN", "ALERT_CHANNEL", "SLACK_WEBHOOK_URL"].map(|name| variables[name].clone());
    assert_eq!(told, [json!("xoxb-1"), json!("#other"), Value::Null]);
}
