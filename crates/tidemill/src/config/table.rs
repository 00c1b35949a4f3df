//! Everything that can be set.

use super::role::Role;
use super::setting::{Kind, Setting, Use};

const DAY: u64 = 86_400_000;

const fn setting(
    name: &'static str,
    kind: Kind,
    default: Option<&'static str>,
    about: &'static str,
) -> Setting {
    Setting { name, aliases: &[], kind, default, in_prod: None, secret: false, used: Use::Now, about }
}

impl Setting {
    const fn also(self, aliases: &'static [&'static str]) -> Self {
        Self { aliases, ..self }
    }

    const fn in_prod(self, default: &'static str) -> Self {
        Self { in_prod: Some(default), ..self }
    }

    const fn secret(self) -> Self {
        Self { secret: true, ..self }
    }

    const fn used(self, used: Use) -> Self {
        Self { used, ..self }
    }
}

pub(crate) static SETTINGS: &[Setting] = &[
    // Where things are.
    setting(
        "TIDEMILL_BACKEND",
        Kind::Choice(&["embedded", "aws"]),
        Some("embedded"),
        "where everything is kept: in the data directory, or on AWS",
    ),
    setting("TIDEMILL_DATA", Kind::Text, Some(".tidemill"), "the data directory"),
    setting(
        "TIDEMILL_LISTEN",
        Kind::Address,
        Some("127.0.0.1:7070"),
        "where the server listens; port 0 picks one",
    ),
    setting("TIDEMILL_SERVER", Kind::Url, None, "the server that commands and workers speak to"),
    setting("TIDEMILL_API_KEY", Kind::Text, None, "the key for it").secret(),
    setting("OUTPUT_DIR", Kind::Text, Some(".output"), "where tasks leave their files"),
    // The names of this installation.
    setting(
        "TENANT_ID",
        Kind::Id,
        Some("default"),
        "the tenant of commands and of a server without keys; without a default on AWS",
    ),
    setting("APP_NAME", Kind::Id, Some("task-workflow"), "the application that events name"),
    setting("NODE_ENV", Kind::Text, Some("dev"), "the stage; events name it as context.environment"),
    setting(
        "TIDEMILL_ROLES",
        Kind::Words(Role::NAMES),
        Some("api,worker,timers,scripts,courier,health"),
        "what a server does, with commas between; the other parts are for other processes",
    ),
    // Tasks.
    setting(
        "MAX_CONCURRENT",
        Kind::Number { min: 1, max: 1_024 },
        Some("3"),
        "tasks that run at a time, whatever runs them",
    )
    .also(&["MAX_CONCURRENT_CLAUDE"]),
    setting(
        "TASK_TIMEOUT",
        Kind::Millis { min: 1_000, max: 7 * DAY },
        Some("200000"),
        "how long a task may run when it does not say, in ms",
    )
    .also(&["CLAUDE_TIMEOUT"]),
    setting(
        "IDLE_TIMEOUT_MS",
        Kind::Millis { min: 1_000, max: 7 * DAY },
        None,
        "how long a task may be silent when it does not say; none: for ever",
    ),
    setting(
        "MAX_MESSAGE_RETRIES",
        Kind::Number { min: 1, max: 100 },
        Some("3"),
        "attempts in all, for tasks that do not say",
    ),
    setting(
        "TASK_SECRETS",
        Kind::Secrets,
        None,
        "variables that definitions may name in `secrets`: NAME for all tenants, tenant:NAME for one, with commas between; none: no variable",
    ),
    setting(
        "INPUT_ARG",
        Kind::Flag,
        Some("true"),
        "whether stored commands get their input as an argument too, which every user of the machine can see",
    ),
    setting(
        "DELETE_FILES_AFTER_UPLOAD",
        Kind::Flag,
        Some("false"),
        "remove a task's files once they are stored",
    ),
    // Leases.
    setting(
        "MAX_MESSAGES",
        Kind::Number { min: 1, max: 10 },
        Some("1"),
        "tasks that one claim of a worker takes",
    ),
    setting(
        "WAIT_TIME_SECONDS",
        Kind::Number { min: 0, max: 20 },
        Some("20"),
        "how long a claim waits for work, in s",
    ),
    setting(
        "VISIBILITY_TIMEOUT",
        Kind::Number { min: 1, max: 43_200 },
        Some("30"),
        "how long a raw receive hides a message, in s",
    ),
    setting(
        "VISIBILITY_EXTENSION_INTERVAL",
        Kind::Millis { min: 100, max: 3_600_000 },
        Some("20000"),
        "how often a worker sends a heartbeat, in ms; more often if the lease of its server is short",
    ),
    setting(
        "VISIBILITY_EXTENSION_AMOUNT",
        Kind::Number { min: 1, max: 43_200 },
        Some("30"),
        "what a heartbeat adds, in s; a lease lasts half as long again; the server's counts",
    ),
    setting("TIDEMILL_RUN_AS", Kind::User, None, "the user whom tasks run as; only root can choose one"),
    setting(
        "SWEEP_INTERVAL_MS",
        Kind::Millis { min: 100, max: DAY },
        Some("60000"),
        "how often the engine looks for what stands still, in ms",
    ),
    setting(
        "SHUTDOWN_GRACE_MS",
        Kind::Millis { min: 0, max: DAY },
        Some("30000"),
        "how long running tasks may go on at a shutdown, in ms",
    ),
    // The server.
    setting(
        "API_RATE_LIMIT",
        Kind::Number { min: 0, max: 1_000_000 },
        None,
        "requests a second from one caller; none: the server's own limit, 0: without limit",
    ),
    setting(
        "TENANT_RATE_LIMIT",
        Kind::Number { min: 0, max: 1_000_000 },
        None,
        "requests a second with all keys of a tenant; none: four times those of one key, 0: without limit",
    ),
    setting(
        "TENANT_STREAMS_MAX",
        Kind::Number { min: 1, max: 1_000_000 },
        None,
        "live streams with all keys of a tenant; none: four times those of one key",
    ),
    setting(
        "CONNECTIONS_MAX",
        Kind::Number { min: 1, max: 1_000_000 },
        None,
        "maximum number of open connections",
    ),
    setting(
        "BODIES_BYTES_MAX",
        Kind::Number { min: 1_048_576, max: 1_099_511_627_776 },
        None,
        "the bytes of all request bodies in flight together",
    ),
    setting("ALLOW_UNDEFINED_TASKS", Kind::Flag, Some("false"), "not available; must stay false"),
    // Agents.
    setting("CLAUDE_BIN", Kind::Text, Some("claude"), "the program that agents are driven by; found by PATH")
        .also(&["CLAUDE_CODE_PATH"]),
    setting("CLAUDE_CODE_OAUTH_TOKEN", Kind::Text, None, "what agents log in with").secret(),
    setting("ANTHROPIC_API_KEY", Kind::Text, None, "the same, as a key of the API").secret(),
    setting("CLAUDE_MODEL", Kind::Text, Some("claude-opus-4-5"), "the model of agents that name none"),
    setting(
        "DEFAULT_TIMEOUT",
        Kind::Millis { min: 1_000, max: 900_000 },
        Some("120000"),
        "how long a try of an agent's step may take when it does not say, in ms",
    ),
    setting(
        "AGENT_IDLE_TIMEOUT",
        Kind::Millis { min: 1_000, max: 900_000 },
        Some("120000"),
        "how long an agent may be silent before its try is given up, in ms",
    ),
    setting(
        "AGENT_MAX_ATTEMPTS",
        Kind::Number { min: 1, max: 10 },
        Some("3"),
        "tries within one attempt of an agent that does not say",
    ),
    setting(
        "AGENT_RETRY_DELAY",
        Kind::Millis { min: 1, max: 60_000 },
        Some("2000"),
        "before the second try, in ms; twice as long before each further one",
    ),
    setting(
        "CLAUDE_SKIP_PERMISSIONS",
        Kind::Flag,
        Some("false"),
        "let agents do everything without asking; only for machines that hold nothing else",
    ),
    // Tenants.
    setting(
        "TENANT_TASKS_MAX",
        Kind::Number { min: 1, max: 100_000_000 },
        Some("1000000"),
        "unfinished tasks that a tenant may have; more are refused with TENANT_FULL",
    ),
    setting(
        "TENANT_BYTES_MAX",
        Kind::Number { min: 1, max: 1_000_000_000_000 },
        Some("4294967296"),
        "bytes of the unfinished tasks that a tenant may have; more are refused with TENANT_FULL",
    ),
    // Scripts.
    setting("SCRIPT_WORKERS", Kind::Number { min: 1, max: 1_024 }, Some("10"), "scripts that run at a time")
        .also(&["SCRIPT_POOL_SIZE"]),
    setting(
        "SCRIPT_QUEUE_BUFFER",
        Kind::Number { min: 1, max: 1_000_000 },
        Some("1000"),
        "executions fetched ahead; an alert is raised when more than 90 % of this number wait",
    )
    .also(&["SCRIPT_BUFFER_SIZE"]),
    setting(
        "SCRIPT_MAX_RETRIES",
        Kind::Number { min: 0, max: 100 },
        Some("3"),
        "how often a script is tried again, after 2, 4, 8 s and so on",
    ),
    setting(
        "SCRIPT_TIMEOUT",
        Kind::Millis { min: 1, max: 3_600_000 },
        Some("30000"),
        "how long a script may run, in ms",
    ),
    setting(
        "SCRIPT_MEMORY_MB",
        Kind::Number { min: 4, max: 16_384 },
        Some("128"),
        "the memory that a script may use, in MiB",
    ),
    setting(
        "SCRIPT_PUBLISH_RATE",
        Kind::Number { min: 1, max: 1_000_000 },
        Some("1000"),
        "events per second that the scripts of one tenant may publish",
    ),
    // Workflows.
    setting(
        "WORKFLOW_SOURCES",
        Kind::Text,
        Some("elephant.workflow"),
        "the sources that workflow events are taken from, with commas between them",
    ),
    setting("WORKFLOW_FAMILIES", Kind::Text, None, "a file with sources whose events have other names"),
    setting("WORKFLOW_CATALOGUE", Kind::Text, None, "a file that says what error codes mean, beside our own"),
    setting(
        "WORKFLOW_AUTO_RESUME",
        Kind::Flag,
        Some("false"),
        "resume parked executions once their last open error is resolved",
    ),
    setting(
        "PARK_TIMEOUT",
        Kind::Millis { min: 1_000, max: 366 * DAY },
        Some("7d"),
        "how long an execution stays parked before it is given up, in ms",
    ),
    setting(
        "TOKEN_KEY_FILE",
        Kind::Text,
        None,
        "the key that task tokens are sealed with; none: beside the data directory",
    ),
    setting("TOKEN_KEY", Kind::Text, None, "the same, as 64 hexadecimal digits, where there are no files")
        .secret(),
    setting(
        "WORKFLOW_TENANT_ID",
        Kind::Id,
        None,
        "the tenant of workflow events from a bus, which the functions on AWS take in; none: `TENANT_ID`",
    ),
    // Webhooks and alerts.
    setting("WORKFLOW_WEBHOOK_URL", Kind::Url, None, "who is told how the wait of a parked execution ended")
        .secret(),
    setting(
        "WEBHOOK_SIGNING_KEY",
        Kind::Text,
        None,
        "what webhooks and callbacks are signed with; none: they are not",
    )
    .secret(),
    setting(
        "CALLBACK_ALLOWED_HOSTS",
        Kind::Text,
        None,
        "hosts that callbacks of jobs may call, with commas between them; *.HOST for all below it",
    ),
    setting("SLACK_WEBHOOK_URL", Kind::Url, None, "where alerts go; none: the bot, else the log").secret(),
    setting("SLACK_BOT_TOKEN", Kind::Text, None, "the bot that posts alerts to ALERT_CHANNEL").secret(),
    setting("ALERT_CHANNEL", Kind::Text, None, "the channel of alerts that a bot posts"),
    setting("SLACK_API_URL", Kind::Url, Some("https://slack.com/api"), "where the bot posts"),
    setting("ALERT_WEBHOOK_URL", Kind::Url, None, "where alerts go as well, signed").secret(),
    setting("ALERT_JOB_FAILED", Kind::Flag, Some("false"), "whether failed jobs are alerted"),
    setting(
        "ALERT_JOB_FAILED_NAMES",
        Kind::JobNames,
        None,
        "names of these jobs, with commas between them; * for any characters, TENANT/NAME for one tenant; none: all",
    ),
    setting(
        "ALERT_JOB_FAILED_WAIT_MS",
        Kind::Millis { min: 1_000, max: 300_000 },
        Some("5000"),
        "how long a failed job waits for others that are told in the same alert, in ms",
    ),
    setting(
        "PUBLIC_URL",
        Kind::Url,
        None,
        "where people reach the server, for links in alerts; none: the address it listens on, unless that is all of them",
    ),
    // Health.
    setting(
        "HEALTH_CHECK_ENABLED",
        Kind::Flag,
        Some("false"),
        "whether a server checks the health of running tasks by a timer; true in prod when nobody says",
    )
    .in_prod("true"),
    setting(
        "HEALTH_CHECK_INTERVAL_MS",
        Kind::Millis { min: 1_000, max: 366 * DAY },
        Some("300000"),
        "how often, in ms",
    ),
    setting(
        "HEALTH_OVERTIME_MS",
        Kind::Millis { min: 1, max: 366 * DAY },
        Some("3600000"),
        "how long an attempt may run before a check calls it overtime, in ms",
    ),
    setting(
        "HEALTH_PENDING_MS",
        Kind::Millis { min: 1, max: 366 * DAY },
        Some("900000"),
        "how long a task may wait for its start before a check tells, in ms",
    ),
    setting(
        "HEALTH_PARKED_MS",
        Kind::Millis { min: 1, max: 366 * DAY },
        Some("86400000"),
        "how long an execution may be parked before a check tells, in ms",
    ),
    setting(
        "HEALTH_OUTBOUND_MS",
        Kind::Millis { min: 1, max: 366 * DAY },
        Some("300000"),
        "how long a delivery may be under way before a check tells, in ms",
    ),
    setting(
        "HEALTH_ALERT_WARNING",
        Kind::Flag,
        Some("false"),
        "whether tasks with a warning are alerted too",
    ),
    // Logs, metrics of workers and traces.
    setting(
        "WORKER_METRICS_LISTEN",
        Kind::Address,
        None,
        "where a worker answers /metrics, /healthz and /readyz; none: nowhere",
    ),
    setting(
        "TIDEMILL_LOG",
        Kind::LogFilter,
        None,
        "which lines of the program itself are shown: a level (error, warn, info, debug, trace, off), and target=level for parts of it, with commas between; none: what RUST_LOG says, or info",
    ),
    setting(
        "LOG_FORMAT",
        Kind::Choice(&["text", "json"]),
        Some("text"),
        "what the lines of run, serve and worker on standard error are",
    ),
    setting(
        "OTEL_EXPORTER_OTLP_ENDPOINT",
        Kind::Url,
        None,
        "the collector that traces go to, at /v1/traces below it; none: there are no traces",
    ),
    setting(
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
        Kind::Url,
        None,
        "the same as a whole address; it goes before the other",
    ),
    setting("OTEL_EXPORTER_OTLP_HEADERS", Kind::Headers, None, "what the collector wants to see")
        .also(&["OTEL_EXPORTER_OTLP_TRACES_HEADERS"])
        .secret(),
    setting("OTEL_SERVICE_NAME", Kind::Text, Some("tidemill"), "what traces call this program"),
    // AWS.
    setting(
        "AWS_REGION",
        Kind::Text,
        Some("eu-west-1"),
        "the region of the AWS backend; when nobody says, the one of the profile goes before this",
    ),
    setting("AWS_ACCESS_KEY_ID", Kind::Text, None, "its key; none: the profile, or the role of the machine")
        .secret(),
    setting("AWS_SECRET_ACCESS_KEY", Kind::Text, None, "its secret").secret(),
    setting("AWS_ENDPOINT_URL", Kind::Url, None, "where AWS is, if it is a double of it"),
    setting("SQS_QUEUE_URL", Kind::Url, None, "its queue").also(&["TASK_QUEUE_URL"]),
    setting("DYNAMODB_EVENTS_TABLE_NAME", Kind::Text, Some("dev-unifiedEvents"), "its table")
        .also(&["EVENTS_TABLE", "TABLE_NAME"]),
    setting(
        "EVENTBRIDGE_BUS_NAME",
        Kind::Text,
        Some("default"),
        "its bus, which must be given there; `-` for none: each process stores its events itself",
    )
    .also(&["EVENT_BUS_NAME"]),
    setting("S3_BUCKET", Kind::Text, None, "its bucket"),
    setting(
        "AWS_GATEWAY",
        Kind::Flag,
        Some("false"),
        "whether a server on a data directory answers clients of AWS too, under the names of the settings above",
    ),
    setting(
        "PROCESSING_TIMEOUT_MS",
        Kind::Millis { min: 0, max: 366 * DAY },
        Some("20000"),
        "accepted, without effect",
    )
    .used(Use::Never),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_defaults_fit() {
        let mut names: Vec<_> =
            SETTINGS.iter().flat_map(|s| std::iter::once(&s.name).chain(s.aliases)).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        for setting in SETTINGS {
            for default in setting.default.into_iter().chain(setting.in_prod) {
                assert_eq!(setting.kind.check(default), Ok(()), "{}", setting.name);
            }
        }
    }
}
