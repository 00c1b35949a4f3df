//! `tidemill aws`: a stage on AWS, deployed and looked after.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tidemill_aws::Connection;
use tidemill_aws::deploy::{self, Change, Deployed, STACKS, StackPlan, StackTemplate};

use super::doctor::{self, Finding};
use super::runtime::block_on;
use super::{CommandError, Ended, Flags};
use crate::aws::{access, options_of};
use crate::client::add;
use crate::config::{AwsValues, Resolved};
use crate::output::Output;

/// Where the code of the functions is put, below the bucket.
const CODE_FOLDER: &str = "lambda";

/// Settings that say to a server what a parameter says to the functions. A secret is better there than in a list of processes.
const SETTINGS: [(&str, &str); 24] = [
    ("TENANT_ID", "TenantId"),
    ("APP_NAME", "AppName"),
    ("SLACK_BOT_TOKEN", "SlackBotToken"),
    ("ALERT_CHANNEL", "AlertChannel"),
    ("WORKFLOW_SOURCES", "WorkflowSources"),
    ("WORKFLOW_TENANT_ID", "WorkflowTenantId"),
    ("WORKFLOW_AUTO_RESUME", "WorkflowAutoResume"),
    ("PARK_TIMEOUT", "ParkTimeout"),
    ("WORKFLOW_WEBHOOK_URL", "WorkflowWebhookUrl"),
    ("ALERT_WEBHOOK_URL", "AlertWebhookUrl"),
    ("WEBHOOK_SIGNING_KEY", "WebhookSigningKey"),
    ("CALLBACK_ALLOWED_HOSTS", "CallbackAllowedHosts"),
    ("ALERT_JOB_FAILED", "AlertJobFailed"),
    ("ALERT_JOB_FAILED_NAMES", "AlertJobFailedNames"),
    ("TENANT_TASKS_MAX", "TenantTasksMax"),
    ("TENANT_BYTES_MAX", "TenantBytesMax"),
    ("MAX_MESSAGE_RETRIES", "MaxMessageRetries"),
    ("VISIBILITY_TIMEOUT", "VisibilityTimeout"),
    ("VISIBILITY_EXTENSION_AMOUNT", "VisibilityExtensionAmount"),
    ("HEALTH_OVERTIME_MS", "HealthOvertime"),
    ("HEALTH_PENDING_MS", "HealthPending"),
    ("HEALTH_PARKED_MS", "HealthParked"),
    ("HEALTH_OUTBOUND_MS", "HealthOutbound"),
    ("HEALTH_ALERT_WARNING", "HealthAlertWarning"),
];

/// Deploy a stage on AWS, check it, and print its settings
///
/// Credentials and region are found as every AWS tool finds them: environment, profile, role of the machine.
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES)]
pub(crate) struct Aws {
    /// The stage [default: `NODE_ENV`]
    #[arg(long, global = true, value_name = "STAGE")]
    stage: Option<String>,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Print the settings of a deployed stage, as lines for .env
    Env,
    /// Check table, bucket, queues, bus, rules and the timer that repairs, and say how to mend what is wrong
    Doctor,
    /// Say what deploy would do, and change nothing
    Plan(Parameters),
    /// Make or change the stacks of a stage, one after the other
    Deploy(Parameters),
}

#[derive(Args)]
struct Parameters {
    /// A parameter of the templates, NAME=VALUE; those that are not given stay as they are
    #[arg(long = "parameter", value_name = "NAME=VALUE", value_parser = parameter)]
    given: Vec<(String, String)>,
    /// The zip of tidemill-lambda; it is put into the bucket of the stage
    #[arg(long, value_name = "FILE")]
    code: Option<PathBuf>,
    /// Only this stack
    #[arg(long, value_name = "STACK", value_parser = STACKS.map(|stack| stack.name))]
    only: Option<String>,
}

fn parameter(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("must be NAME=VALUE".to_owned()),
    }
}

impl Aws {
    pub(crate) fn flags(&self) -> Flags {
        let mut flags = Flags::new();
        add(&mut flags, "NODE_ENV", "--stage", self.stage.as_ref());
        flags
    }

    pub(crate) fn execute(self, config: &Resolved, out: &mut Output) -> Ended {
        let stage = config.values.environment.as_str();
        block_on(async {
            let connection = Box::pin(Connection::open(access(config)?)).await;
            match self.what {
                What::Env => env(&connection, stage, self.json, out).await,
                What::Doctor => {
                    let (parts, mut found) = parts(&connection, config, self.stage.is_some()).await?;
                    found.extend(findings(&connection, config, &parts).await?);
                    Ok(doctor::report(&found, self.json, out)?)
                }
                What::Plan(parameters) => parameters.plan(&connection, config, self.json, out).await,
                What::Deploy(parameters) => parameters.deploy(&connection, config, self.json, out).await,
            }
        })
    }
}

async fn env(connection: &Connection, stage: &str, json: bool, out: &mut Output) -> Ended {
    let mut found = vec![("TIDEMILL_BACKEND", "aws".to_owned()), ("NODE_ENV", stage.to_owned())];
    found.extend(connection.region().map(|region| ("AWS_REGION", region)));
    found.extend(deploy::environment(connection, stage).await?);
    found.extend(deploy::identity(connection, stage).await?);
    if json {
        let map: BTreeMap<_, _> = found.into_iter().collect();
        out.json(&map)?;
        return Ok(ExitCode::SUCCESS);
    }
    let names_tenant = found.iter().any(|(name, _)| *name == "TENANT_ID");
    for (name, value) in found {
        out.data(format_args!("{name}={value}"))?;
    }
    if !names_tenant {
        out.note("no stack of this stage names its tenant yet; set TENANT_ID as well");
    }
    print_api_address(connection, stage, out).await?;
    out.note(format_args!(
        "the key of task tokens is not shown; processes that seal or open tokens need it as TOKEN_KEY: aws secretsmanager \
         get-secret-value --secret-id task-workflow/{stage}/token-key"
    ));
    Ok(ExitCode::SUCCESS)
}

/// Where the parts of a stage are: as it exports them if it was named or the settings do not say, else as they say. With what they
/// say otherwise.
async fn parts(
    connection: &Connection,
    config: &Resolved,
    is_named: bool,
) -> Result<(AwsValues, Vec<Finding>), CommandError> {
    let mut values = config.values.aws.clone();
    if !is_named && values.bucket.is_some() && values.queue_url.is_some() {
        return Ok((values, Vec::new()));
    }
    let stage = &config.values.environment;
    let mut others = Vec::new();
    for (name, value) in deploy::environment(connection, stage).await? {
        match config.given(name) {
            Some(given) if !is_named || given.value == value => continue,
            Some(given) => {
                let found = format!("{name} is {} here, and {value} in stage {stage}", given.value);
                let advice = format!(
                    "the processes that are set up so do not work on this stage; see `tidemill aws env --stage {stage}`"
                );
                others.push(Finding::warn("settings", found, advice));
            }
            None => {}
        }
        match name {
            "DYNAMODB_EVENTS_TABLE_NAME" => values.table = value,
            "S3_BUCKET" => values.bucket = Some(value),
            "SQS_QUEUE_URL" => values.queue_url = Some(value),
            "EVENTBRIDGE_BUS_NAME" => values.bus = Some(value),
            _ => {}
        }
    }
    Ok((values, others))
}

/// How the parts of a stage are.
pub(crate) async fn findings(
    connection: &Connection,
    config: &Resolved,
    parts: &AwsValues,
) -> Result<Vec<Finding>, CommandError> {
    let options = options_of(config, parts, 0)?;
    let checks = deploy::checkup(connection, &options, &config.values.environment).await;
    Ok(checks.into_iter().map(Finding::from).collect())
}

impl Parameters {
    fn stacks(&self) -> impl Iterator<Item = StackTemplate> {
        let is_wanted = |stack: &StackTemplate| self.only.as_ref().is_none_or(|only| only == stack.name);
        STACKS.into_iter().filter(is_wanted)
    }

    /// What was given, by flags and by settings that mean the same.
    fn all_given(&self, config: &Resolved) -> Result<BTreeMap<String, String>, CommandError> {
        let mut given: BTreeMap<_, _> = self.given.iter().cloned().collect();
        let unknown = deploy::unknown_parameters(&given);
        if !unknown.is_empty() {
            let unknown = unknown.join(", ");
            return Err(CommandError::Unusable(format!("--parameter: no stack has {unknown}")));
        }
        for (setting, name) in SETTINGS {
            if let Some(source) = config.given(setting) {
                given.entry(name.to_owned()).or_insert_with(|| source.value.clone());
            }
        }
        Ok(given)
    }

    fn code(&self) -> Result<Option<Code>, CommandError> {
        self.code.as_deref().map(Code::read).transpose()
    }

    async fn plan(&self, connection: &Connection, config: &Resolved, json: bool, out: &mut Output) -> Ended {
        let stage = &config.values.environment;
        let mut given = self.all_given(config)?;
        if let Some(code) = self.code()? {
            let bucket = bucket(connection, stage).await;
            let bucket = bucket.unwrap_or_else(|_| "the bucket that infrastructure makes".to_owned());
            code.name(&mut given, &bucket);
        }
        let mut plans = Vec::new();
        for stack in self.stacks() {
            plans.push(deploy::plan(connection, stack, stage, &given).await?);
        }
        if json {
            let plans: Vec<_> = plans.iter().map(plan_json).collect();
            out.json(&json!({ "stage": stage, "stacks": plans }))?;
            return Ok(ExitCode::SUCCESS);
        }
        for plan in &plans {
            show(plan, out)?;
        }
        Ok(ExitCode::SUCCESS)
    }

    async fn deploy(
        &self,
        connection: &Connection,
        config: &Resolved,
        json: bool,
        out: &mut Output,
    ) -> Ended {
        let stage = &config.values.environment;
        let mut given = self.all_given(config)?;
        let mut code = self.code()?;
        let mut done = Vec::new();
        for stack in self.stacks() {
            // The bucket is there once the first stack is.
            if stack != STACKS[0]
                && let Some(code) = code.take()
            {
                let bucket = bucket(connection, stage).await?;
                out.note(format_args!("putting the code into s3://{bucket}/{}", code.key));
                code.name(&mut given, &bucket);
                deploy::upload_code(connection, &bucket, &code.key, code.zip).await?;
            }
            let plan = deploy::plan(connection, stack, stage, &given).await?;
            if !json {
                show(&plan, out)?;
            }
            let deployed = deploy::deploy(connection, &plan).await?;
            let word = match deployed {
                Deployed::Made => "made",
                Deployed::Changed => "changed",
                Deployed::AsItWas => "as it was",
            };
            out.note(format_args!("{}: {word}", plan.name));
            done.push(json!({ "stack": plan.name, "result": word }));
        }
        print_api_address(connection, stage, out).await?;
        if json {
            out.json(&json!({ "stage": stage, "stacks": done }))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Says where the API is, if it is deployed.
async fn print_api_address(
    connection: &Connection,
    stage: &str,
    out: &mut Output,
) -> Result<(), CommandError> {
    if let Some(url) = deploy::api_url(connection, stage).await? {
        out.note(format_args!(
            "the API and the dashboard are at {url}, for those with a key: `tidemill keys create`"
        ));
    }
    Ok(())
}

/// The bucket of a stage.
async fn bucket(connection: &Connection, stage: &str) -> Result<String, CommandError> {
    let found = deploy::environment(connection, stage).await?;
    let bucket = found.into_iter().find(|(name, _)| *name == "S3_BUCKET").map(|(_, value)| value);
    bucket.ok_or_else(|| CommandError::Failed(format!("stage {stage} names no bucket")))
}

/// The functions as one file, which is named by what is in it: another version has another name.
struct Code {
    zip: Vec<u8>,
    key: String,
}

impl Code {
    fn read(path: &Path) -> Result<Self, CommandError> {
        let shown = path.display();
        let zip = std::fs::read(path)
            .map_err(|error| CommandError::Unusable(format!("cannot read {shown}: {error}")))?;
        if !zip.starts_with(b"PK") {
            return Err(CommandError::Unusable(format!("--code: {shown} is no zip file")));
        }
        let digest = Sha256::digest(&zip);
        let name = digest.iter().take(8).fold(0, |name: u64, byte| name << 8 | u64::from(*byte));
        Ok(Self { zip, key: format!("{CODE_FOLDER}/{name:016x}.zip") })
    }

    fn name(&self, given: &mut BTreeMap<String, String>, bucket: &str) {
        given.insert("CodeBucket".to_owned(), bucket.to_owned());
        given.insert("CodeKey".to_owned(), self.key.clone());
    }
}

fn show(plan: &StackPlan, out: &mut Output) -> Result<(), CommandError> {
    match &plan.change {
        Change::Create { resources } => {
            out.data(format_args!("{}: is made, with {resources} resources", plan.name))?;
        }
        Change::Again { resources } => {
            out.data(format_args!(
                "{}: is made anew, with {resources} resources: its first try failed and is removed",
                plan.name
            ))?;
        }
        Change::Nothing => out.data(format_args!("{}: stays as it is", plan.name))?,
        Change::Stuck(status) => {
            out.data(format_args!("{}: is {status} and cannot be changed now", plan.name))?;
        }
        Change::Update(lines) => {
            out.data(format_args!("{}: is changed", plan.name))?;
            for line in lines {
                out.data(format_args!("  {line}"))?;
            }
        }
    }
    Ok(())
}

fn plan_json(plan: &StackPlan) -> serde_json::Value {
    let (change, lines) = match &plan.change {
        Change::Create { .. } => ("create", Vec::new()),
        Change::Again { .. } => ("again", Vec::new()),
        Change::Update(lines) => ("update", lines.clone()),
        Change::Nothing => ("none", Vec::new()),
        Change::Stuck(status) => ("stuck", vec![status.clone()]),
    };
    json!({ "stack": plan.name, "change": change, "changes": lines })
}
