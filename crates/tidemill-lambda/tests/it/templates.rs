//! What the templates say, row by row.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use tidemill_engine::health::HealthRules;
use tidemill_engine::policy::Policy;

use crate::site::STACKS;

const FUNCTION: &str = "AWS::Lambda::Function";

/// A template with its parameters put in. Places of other resources are written `Name` and `Name.Attribute`, imports as
/// `import:name`.
pub(crate) struct Stack(Value);

impl Stack {
    pub(crate) fn of(name: &str, stage: &str) -> Self {
        Self::with(name, stage, &[])
    }

    /// The same with other values of parameters than their defaults.
    fn with(name: &str, stage: &str, parameters: &[(&str, &str)]) -> Self {
        let (_, text, _) = STACKS.iter().find(|(stack, _, _)| *stack == name).expect("there is such a stack");
        let mut template: Value = serde_json::from_str(text).expect("the template is JSON");
        for (parameter, value) in parameters {
            template["Parameters"][*parameter]["Default"] = json!(value);
        }
        Self(resolved(&template, &template, stage))
    }

    fn resources(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0["Resources"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(name, resource)| (name.as_str(), resource))
    }

    pub(crate) fn of_type<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = (&'a str, &'a Value)> {
        let found = self.resources().filter(move |(_, resource)| resource["Type"] == kind);
        found.map(|(name, resource)| (name, &resource["Properties"]))
    }

    pub(crate) fn properties(&self, name: &str) -> &Value {
        let found = &self.0["Resources"][name]["Properties"];
        assert!(!found.is_null(), "{name} is not there");
        found
    }

    fn exports(&self) -> BTreeSet<String> {
        let outputs = self.0["Outputs"].as_object().into_iter().flatten();
        outputs.filter_map(|(_, output)| output["Export"]["Name"].as_str()).map(str::to_owned).collect()
    }

    fn imports(&self) -> BTreeSet<String> {
        let mut found = BTreeSet::new();
        collect(&self.0, &mut |text| {
            found.extend(text.split("import:").skip(1).map(|rest| {
                rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '-')
                    .next()
                    .unwrap_or_default()
                    .to_owned()
            }));
        });
        found
    }
}

fn collect(value: &Value, see: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => see(text),
        Value::Array(items) => items.iter().for_each(|item| collect(item, see)),
        Value::Object(fields) => fields.values().for_each(|field| collect(field, see)),
        _ => {}
    }
}

fn resolved(value: &Value, template: &Value, stage: &str) -> Value {
    let again = |value: &Value| resolved(value, template, stage);
    let fields = match value {
        Value::Array(items) => return Value::Array(items.iter().map(again).collect()),
        Value::Object(fields) => fields,
        other => return other.clone(),
    };
    let parameter = |name: &str| match name {
        "Stage" => Some(json!(stage)),
        _ => template["Parameters"][name].get("Default").cloned(),
    };
    let single = fields.iter().next().filter(|_| fields.len() == 1);
    match single.map(|(name, value)| (name.as_str(), value)) {
        Some(("Ref", name)) => parameter(name.as_str().unwrap_or_default()).unwrap_or_else(|| name.clone()),
        Some(("Fn::GetAtt", place)) => json!(format!("{}.{}", text(&place[0]), text(&place[1]))),
        Some(("Fn::ImportValue", name)) => json!(format!("import:{}", text(&again(name)))),
        Some(("Fn::Sub", pattern)) => {
            let names = template["Parameters"].as_object().into_iter().flatten().map(|(name, _)| name);
            json!(names.fold(text(pattern).to_owned(), |pattern, name| {
                let value = parameter(name).unwrap_or_default();
                pattern.replace(&format!("${{{name}}}"), text(&value))
            }))
        }
        Some(("Fn::Join", parts)) => {
            let parts = again(&parts[1]);
            json!(parts.as_array().into_iter().flatten().map(text).collect::<String>())
        }
        Some(("Fn::Split", parts)) => {
            let whole = again(&parts[1]);
            json!(text(&whole).split(text(&parts[0])).collect::<Vec<_>>())
        }
        Some(("Fn::If", choice)) => {
            let holds = condition(&template["Conditions"][text(&choice[0])], template, stage);
            again(&choice[if holds { 1 } else { 2 }])
        }
        _ => Value::Object(fields.iter().map(|(name, value)| (name.clone(), again(value))).collect()),
    }
}

fn condition(value: &Value, template: &Value, stage: &str) -> bool {
    if let Some(inner) = value.get("Fn::Not") {
        return !condition(&inner[0], template, stage);
    }
    let sides = resolved(&value["Fn::Equals"], template, stage);
    assert!(sides[0].is_string(), "{value} is not understood");
    sides[0] == sides[1]
}

pub(crate) fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Which actions a function may do on what, without those that AWS Lambda itself needs to log.
pub(crate) fn rights(stack: &Stack, function: &str) -> BTreeMap<String, BTreeSet<String>> {
    let role = stack.properties(&format!("{function}Role"));
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let statements = role["Policies"].as_array().into_iter().flatten();
    for statement in
        statements.flat_map(|policy| policy["PolicyDocument"]["Statement"].as_array().expect("statements"))
    {
        assert_eq!(statement["Effect"], "Allow");
        let resource = text(&statement["Resource"]);
        // Task tokens belong to no resource that a policy could name.
        let is_token = text(&statement["Action"][0]).starts_with("states:SendTask");
        assert!(!resource.is_empty() && (resource != "*" || is_token), "{statement}");
        for action in statement["Action"].as_array().expect("a list").iter().map(text) {
            assert!(!action.contains('*'), "{action}");
            if !action.starts_with("logs:") {
                found.entry(resource.to_owned()).or_default().insert(action.to_owned());
            }
        }
    }
    found
}

#[test]
fn in_03_what_all_parts_share() {
    let stack = Stack::of("infrastructure", "dev");
    let queue = stack.properties("TaskQueue");
    assert_eq!(
        (&queue["VisibilityTimeout"], &queue["ReceiveMessageWaitTimeSeconds"]),
        (&json!(900), &json!(20))
    );
    assert_eq!(
        queue["RedrivePolicy"],
        json!({ "deadLetterTargetArn": "TaskQueueDLQ.Arn", "maxReceiveCount": 3 })
    );
    let dead = stack.properties("TaskQueueDLQ");
    assert_eq!(dead["MessageRetentionPeriod"], 14 * 24 * 3_600);
    assert_eq!(dead["VisibilityTimeout"], 180, "six times the timeout of the function that reads it");
    assert_eq!(stack.properties("EventBus")["Name"], "task-workflow-dev");
    let block = &stack.properties("ArtifactsBucket")["PublicAccessBlockConfiguration"];
    assert!(block.as_object().is_some_and(|block| block.len() == 4 && block.values().all(|on| on == true)));
    for kept in ["EventsTable", "ArtifactsBucket", "TokenKey"] {
        // A first try that fails leaves nothing behind whose name the next one needs.
        assert_eq!(stack.0["Resources"][kept]["DeletionPolicy"], "RetainExceptOnCreate", "{kept}");
    }
}

#[test]
fn in_04_what_stacks_import_others_export_before_them() {
    let mut exported = BTreeSet::new();
    for (name, text, _) in STACKS {
        assert!(text.len() <= 51_200, "{name} is too long to be handed over with a request");
        let stack = Stack::of(name, "dev");
        for import in stack.imports() {
            assert!(exported.contains(&import), "{name} imports {import}, which nothing before it exports");
        }
        exported.extend(stack.exports());
    }
    for resource in
        ["task-queue-arn", "task-queue-dlq-arn", "events-table-arn", "event-bus-arn", "artifacts-bucket-arn"]
    {
        assert!(exported.contains(&format!("{resource}-dev")), "{resource}");
    }
    assert!(Stack::of("dispatcher", "dev").imports().contains("eventbridge-target-dlq-arn-dev"));
}

#[test]
fn in_05_the_table() {
    let stack = Stack::of("infrastructure", "prod");
    let table = stack.properties("EventsTable");
    assert_eq!((text(&table["TableName"]), text(&table["BillingMode"])), ("events-prod", "PAY_PER_REQUEST"));
    let key = |hash: &str, range: &str| {
        json!([
            { "AttributeName": hash, "KeyType": "HASH" },
            { "AttributeName": range, "KeyType": "RANGE" },
        ])
    };
    assert_eq!(table["KeySchema"], key("PK", "SK"));
    let indexes: Vec<_> = (1..=7)
        .map(|n| {
            json!({
                "IndexName": format!("GSI{n}-index"),
                "KeySchema": key(&format!("GSI{n}PK"), &format!("GSI{n}SK")),
                "Projection": { "ProjectionType": "ALL" },
            })
        })
        .collect();
    assert_eq!(table["GlobalSecondaryIndexes"], json!(indexes));
    assert_eq!(table["TimeToLiveSpecification"], json!({ "AttributeName": "ttl", "Enabled": true }));
    assert_eq!(table["AttributeDefinitions"].as_array().map(Vec::len), Some(16));
}

#[test]
fn in_06_and_07_the_rule_and_where_its_failures_go() {
    let stack = Stack::of("event", "dev");
    let rule = stack.properties("SaveEventToDynamoRule");
    assert_eq!(rule["Name"], "dev-save-event-to-dynamo");
    assert_eq!(rule["EventBusName"], "import:event-bus-name-dev");
    assert_eq!(rule["EventPattern"], json!({ "detail-type": ["log-event"] }));
    assert_eq!(rule["Targets"][0]["Id"], "dev-SaveEventToDynamo");
    let dead = stack.properties("EventBridgeTargetDLQ");
    assert_eq!(
        (text(&dead["QueueName"]), &dead["MessageRetentionPeriod"]),
        ("dev-eventbridge-target-dlq", &json!(1_209_600))
    );
    assert_eq!(dead["VisibilityTimeout"], 180);
    let policy = stack.properties("EventBridgeTargetDLQPolicy");
    assert_eq!(policy["Queues"], json!(["EventBridgeTargetDLQ"]));
    let statement = &policy["PolicyDocument"]["Statement"][0];
    assert_eq!(statement["Principal"], json!({ "Service": "events.amazonaws.com" }));
    assert_eq!(
        (text(&statement["Action"]), text(&statement["Resource"])),
        ("sqs:SendMessage", "EventBridgeTargetDLQ.Arn")
    );
}

/// Every rule leads to a function that it may call, tries it three times and keeps what it could not deliver; and every
/// function that is called so leaves its failures there too.
#[test]
fn in_07_and_08_every_target_is_alike() {
    let mut rules = 0;
    for (name, _, _) in STACKS {
        let stack = Stack::of(name, "dev");
        let dead = if name == "event" {
            "EventBridgeTargetDLQ.Arn"
        } else {
            "import:eventbridge-target-dlq-arn-dev"
        };
        for (rule, properties) in stack.of_type("AWS::Events::Rule") {
            rules += 1;
            let target = &properties["Targets"][0];
            assert_eq!(properties["Targets"].as_array().map(Vec::len), Some(1), "{rule}");
            assert_eq!(
                target["RetryPolicy"],
                json!({ "MaximumRetryAttempts": 3, "MaximumEventAgeInSeconds": 3600 })
            );
            assert_eq!(target["DeadLetterConfig"]["Arn"], dead, "{rule}");
            let function = text(&target["Arn"]).strip_suffix(".Arn").expect("a function");
            let permitted = stack.of_type("AWS::Lambda::Permission").any(|(_, permission)| {
                permission["FunctionName"] == function
                    && permission["Principal"] == "events.amazonaws.com"
                    && permission["SourceArn"] == format!("{rule}.Arn")
            });
            assert!(permitted, "{rule} may not call {function}");
            let kept = stack.of_type("AWS::Lambda::EventInvokeConfig").any(|(_, config)| {
                config["FunctionName"] == function
                    && config["DestinationConfig"]["OnFailure"]["Destination"] == dead
            });
            assert!(kept, "what {function} fails at is lost");
        }
    }
    assert_eq!(rules, 5, "save-event, workflow-event, dispatcher, reconcile, health-check");
}

#[test]
fn in_08_functions() {
    let mut roles = BTreeSet::new();
    for (name, _, has_functions) in STACKS {
        let stack = Stack::of(name, "dev");
        assert_eq!(stack.of_type(FUNCTION).next().is_some(), has_functions, "{name}");
        for (function, properties) in stack.of_type(FUNCTION) {
            assert_eq!(
                (&properties["MemorySize"], &properties["Timeout"]),
                (&json!(256), &json!(30)),
                "{function}"
            );
            assert_eq!(properties["Runtime"], "provided.al2023");
            let role = text(&properties["Handler"]);
            assert_eq!(properties["FunctionName"], format!("{role}-dev"));
            // One role for each, and no other's.
            assert_eq!(properties["Role"], format!("{}Role.Arn", function.trim_end_matches("Function")));
            let logs = stack.of_type("AWS::Logs::LogGroup");
            let logs = logs.filter(|(_, group)| group["LogGroupName"] == format!("/aws/lambda/{role}-dev"));
            assert_eq!(logs.map(|(_, group)| &group["RetentionInDays"]).collect::<Vec<_>>(), [&json!(30)]);
            roles.insert(role.to_owned());
        }
    }
    let expected = [
        "dispatcher",
        "dlq-processor",
        "eventbridge-dlq-alert",
        "health-check",
        "producer-api",
        "reconcile",
        "save-event",
        "workflow-event",
    ];
    assert_eq!(roles.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

#[test]
fn in_09_dead_letter_functions_take_one_message_at_a_time() {
    let stack = Stack::of("event", "dev");
    let source = |name: &str| stack.properties(name).clone();
    for (name, function, queue) in [
        ("EventBridgeDlqAlertSource", "EventBridgeDlqAlertFunction", "EventBridgeTargetDLQ.Arn"),
        ("DlqProcessorSource", "DlqProcessorFunction", "import:task-queue-dlq-arn-dev"),
    ] {
        let expected = json!({
            "FunctionName": function, "EventSourceArn": queue, "BatchSize": 1,
            "FunctionResponseTypes": ["ReportBatchItemFailures"],
        });
        assert_eq!(source(name), expected);
    }
    let variables = &stack.properties("EventBridgeDlqAlertFunction")["Environment"]["Variables"];
    assert_eq!(variables["SLACK_WEBHOOK_URL"], "{{resolve:ssm:/brief/dev/slack-webhook-url}}");
    assert_eq!(variables["SLACK_BOT_TOKEN"], "AWS::NoValue");
    let named = Stack::with("event", "dev", &[("SlackWebhookParameter", "/ours/hook")]);
    let variables = &named.properties("EventBridgeDlqAlertFunction")["Environment"]["Variables"];
    assert_eq!(variables["SLACK_WEBHOOK_URL"], "{{resolve:ssm:/ours/hook}}");
}

#[test]
fn in_10_the_dispatcher() {
    let stack = Stack::of("dispatcher", "dev");
    let rule = stack.properties("TaskDispatcherRule");
    let pattern = json!({
        "detail-type": ["log-event"],
        "detail": { "eventType": ["Task Completed", "Task Failed", "Task Timeout"] },
    });
    assert_eq!(rule["EventPattern"], pattern);
    let variables = &stack.properties("TaskDispatcherFunction")["Environment"]["Variables"];
    assert_eq!(variables["TASK_QUEUE_URL"], "import:task-queue-url-dev");
    let rights = rights(&stack, "TaskDispatcher");
    let may =
        |resource: &str, action: &str| rights.get(resource).is_some_and(|actions| actions.contains(action));
    assert!(may("import:events-table-arn-dev", "dynamodb:Query"));
    assert!(may("import:events-table-arn-dev/index/*", "dynamodb:Query"));
    assert!(may("import:task-queue-arn-dev", "sqs:SendMessage"));
    assert!(may("import:event-bus-arn-dev", "events:PutEvents"));
}

#[test]
fn in_11_the_api() {
    let stack = Stack::of("producer-api", "dev");
    assert_eq!(stack.properties("HttpApi")["ProtocolType"], "HTTP");
    assert_eq!(stack.properties("HttpApiIntegration")["PayloadFormatVersion"], "2.0");
    assert_eq!(stack.properties("TaskDefinitionsTable")["TableName"], "task-definitions-dev");
    let routes: BTreeSet<_> =
        stack.of_type("AWS::ApiGatewayV2::Route").map(|(_, route)| text(&route["RouteKey"])).collect();
    for route in [
        "POST /v1/jobs",
        "GET /v1/jobs",
        "GET /v1/jobs/{jobId}",
        "POST /v1/jobs/{jobId}/tasks",
        "POST /v1/task-definitions",
        "GET /v1/task-definitions",
        "GET /v1/task-definitions/{name}",
        "PUT /v1/task-definitions/{name}",
        "DELETE /v1/task-definitions/{name}",
        "$default",
    ] {
        assert!(routes.contains(route), "{route}");
    }
}

#[test]
fn in_12_schedules_by_stage() {
    for (stage, expression, state) in [
        ("prod", "rate(5 minutes)", "ENABLED"),
        ("dev", "rate(365 days)", "DISABLED"),
        ("test", "rate(365 days)", "DISABLED"),
    ] {
        let stack = Stack::of("health-check", stage);
        let rule = stack.properties("HealthCheckSchedule");
        assert_eq!((text(&rule["ScheduleExpression"]), text(&rule["State"])), (expression, state), "{stage}");
        let stack = Stack::of("dispatcher", stage);
        let rule = stack.properties("ReconcileSchedule");
        assert_eq!(
            (text(&rule["ScheduleExpression"]), text(&rule["State"])),
            ("rate(1 minute)", "ENABLED"),
            "{stage}"
        );
    }
}

/// Every function that decides is told the same, and what nobody sets is as on the command line.
#[test]
fn functions_are_told_what_a_server_is_told() {
    let mut told = 0;
    for (name, _, _) in STACKS {
        for (function, properties) in Stack::of(name, "dev").of_type(FUNCTION) {
            if properties["Handler"] == "save-event" {
                continue;
            }
            told += 1;
            let variables = &properties["Environment"]["Variables"];
            for (variable, value) in [
                ("WORKFLOW_SOURCES", "elephant.workflow"),
                ("WORKFLOW_AUTO_RESUME", "false"),
                ("PARK_TIMEOUT", "7d"),
                ("WORKFLOW_WEBHOOK_URL", ""),
                ("ALERT_WEBHOOK_URL", ""),
                ("WEBHOOK_SIGNING_KEY", ""),
                ("CALLBACK_ALLOWED_HOSTS", ""),
                ("ALERT_JOB_FAILED", "false"),
                ("ALERT_JOB_FAILED_NAMES", ""),
            ] {
                assert_eq!(variables[variable], value, "{function} {variable}");
            }
            let default = Policy::default();
            for (variable, limit) in [
                ("TENANT_TASKS_MAX", default.tenant_tasks_max),
                ("TENANT_BYTES_MAX", default.tenant_bytes_max),
                ("MAX_MESSAGE_RETRIES", default.retry.max_attempts as usize),
                ("VISIBILITY_TIMEOUT", usize::try_from(default.visibility_millis / 1_000).unwrap()),
                // A lease lasts half as long again.
                ("VISIBILITY_EXTENSION_AMOUNT", usize::try_from(default.lease_millis / 1_500).unwrap()),
            ] {
                assert_eq!(
                    variables[variable].to_string().trim_matches('"'),
                    limit.to_string(),
                    "{function} {variable}"
                );
            }
        }
    }
    assert_eq!(told, 7);
    let rules = HealthRules::default();
    let check = Stack::of("health-check", "dev");
    let variables = &check.properties("HealthCheckFunction")["Environment"]["Variables"];
    for (variable, value, millis, default) in [
        ("HEALTH_OVERTIME_MS", "1h", 3_600_000, rules.overtime_millis),
        ("HEALTH_PENDING_MS", "15m", 900_000, rules.pending_millis),
        ("HEALTH_PARKED_MS", "1d", 86_400_000, rules.parked_millis),
        ("HEALTH_OUTBOUND_MS", "5m", 300_000, rules.outbound_millis),
    ] {
        assert_eq!((&variables[variable], millis), (&json!(value), default), "{variable}");
    }
    assert_eq!(variables["HEALTH_ALERT_WARNING"], rules.alert_warnings.to_string());
    let rule = Stack::of("event", "dev");
    assert_eq!(rule.properties("WorkflowEventRule")["EventPattern"]["source"], json!(["elephant.workflow"]));
}

/// A server may do what a worker may, and beyond it give back its duties and tell Step Functions. That this is enough is shown by a
/// deployed stage.
#[test]
fn servers_may_do_more_than_workers() {
    let stack = Stack::of("consumer", "dev");
    let statements = &stack.properties("ServerPolicy")["PolicyDocument"]["Statement"];
    let condition = json!({ "ForAllValues:StringLike": { "dynamodb:LeadingKeys": ["DUTY#*"] } });
    assert_eq!(statements[0]["Action"], json!(["dynamodb:DeleteItem"]));
    assert_eq!(
        (text(&statements[0]["Resource"]), &statements[0]["Condition"]),
        ("import:events-table-arn-dev", &condition)
    );
    assert_eq!(statements[1]["Action"], json!(["states:SendTaskFailure", "states:SendTaskSuccess"]));
    assert_eq!(statements.as_array().map(Vec::len), Some(2));
    assert_eq!(stack.properties("ServerRole")["ManagedPolicyArns"], json!(["WorkerPolicy", "ServerPolicy"]));
    assert_eq!(stack.properties("WorkerRole")["ManagedPolicyArns"], json!(["WorkerPolicy"]));
    // Tasks have the rights of their worker, and the code of the functions is in the same bucket.
    let statements =
        stack.properties("WorkerPolicy")["PolicyDocument"]["Statement"].as_array().expect("a list");
    let denied = json!({
        "Sid": "NotTheCode", "Effect": "Deny", "Action": ["s3:DeleteObject", "s3:PutObject"],
        "Resource": "import:artifacts-bucket-arn-dev/lambda/*",
    });
    assert!(statements.contains(&denied), "{statements:?}");
}

/// Each function may do what its handler does, and nothing else. That each needs what it may is shown by the deployed stage.
#[test]
fn functions_may_do_what_they_do() {
    let decide = |more: &[(&str, &[&str])]| {
        let mut rights: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        let table = [
            "dynamodb:BatchGetItem",
            "dynamodb:GetItem",
            "dynamodb:PutItem",
            "dynamodb:Query",
            "dynamodb:UpdateItem",
        ];
        let all: &[(&str, &[&str])] = &[
            ("import:events-table-arn-dev", &table),
            ("import:artifacts-bucket-arn-dev/*", &["s3:DeleteObject", "s3:GetObject", "s3:PutObject"]),
            ("import:artifacts-bucket-arn-dev", &["s3:ListBucket"]),
            ("import:event-bus-arn-dev", &["events:PutEvents"]),
            ("import:task-queue-arn-dev", &["sqs:SendMessage"]),
        ];
        for (resource, actions) in all.iter().chain(more) {
            let known = rights.entry((*resource).to_owned()).or_default();
            known.extend(actions.iter().map(|action| (*action).to_owned()));
        }
        rights
    };
    let one = |resource: &str, action: &str| (resource.to_owned(), BTreeSet::from([action.to_owned()]));
    let queue: &[&str] = &["sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"];
    let fails: &[&str] = &["sqs:SendMessage"];
    let index: (&str, &[&str]) = ("import:events-table-arn-dev/index/*", &["dynamodb:Query"]);
    let (dead, imported) = ("EventBridgeTargetDLQ.Arn", "import:eventbridge-target-dlq-arn-dev");
    let save = BTreeMap::from([
        one("import:events-table-arn-dev", "dynamodb:PutItem"),
        one(dead, "sqs:SendMessage"),
    ]);
    for (stack, function, expected) in [
        ("event", "SaveEventToDynamo", save),
        ("event", "DlqProcessor", decide(&[("import:task-queue-dlq-arn-dev", queue)])),
        ("event", "EventBridgeDlqAlert", decide(&[(dead, queue)])),
        ("event", "WorkflowEvent", decide(&[(dead, fails)])),
        ("dispatcher", "TaskDispatcher", decide(&[index, (imported, fails)])),
        (
            "dispatcher",
            "Reconcile",
            decide(&[
                ("import:task-queue-arn-dev", &["sqs:GetQueueAttributes"]),
                ("*", &["states:SendTaskFailure", "states:SendTaskSuccess"]),
                (imported, fails),
            ]),
        ),
        ("health-check", "HealthCheck", decide(&[index, (imported, fails)])),
        ("producer-api", "ProducerApi", decide(&[index])),
    ] {
        assert_eq!(rights(&Stack::of(stack, "dev"), function), expected, "{function}");
    }
}
