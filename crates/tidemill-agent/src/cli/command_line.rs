//! How the CLI is called: its arguments and its environment.
//!
//! Nothing on disk has a say in it: no settings, no instructions and no servers of the directory or the user are read.
//! The prompt goes through stdin, where it has no limit of length and no process list shows it.

use std::ffi::OsString;
use std::path::Path;

use tidemill_model::authored::agent::{MODEL_INHERIT, MicroUsd};
use tidemill_model::{AgentSpec, AgentStep};
use uuid::Uuid;

use crate::settings::Settings;

/// Which session a try is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Session {
    /// A new one under an id of ours, so that it is known however the try ends.
    New(String),
    /// One that an earlier try began.
    Resumed(String),
}

impl Session {
    /// A session that an earlier try began. Ours have UUIDs for ids; whatever else stands where one is noted, such as a
    /// flag, is none.
    pub(crate) fn resumed(noted: &str) -> Option<Self> {
        Some(Self::Resumed(Uuid::try_parse(noted).ok()?.to_string()))
    }

    pub(crate) fn id(&self) -> &str {
        match self {
            Self::New(id) | Self::Resumed(id) => id,
        }
    }

    pub(crate) fn is_resumed(&self) -> bool {
        matches!(self, Self::Resumed(_))
    }
}

/// The model that a step is for; `None` leaves it to the CLI.
pub(crate) fn model_of<'a>(
    settings: &'a Settings,
    spec: &'a AgentSpec,
    step: &'a AgentStep,
) -> Option<&'a str> {
    let model = step.model.as_deref().or(spec.model.as_deref()).unwrap_or(&settings.model);
    (model != MODEL_INHERIT).then_some(model)
}

/// The arguments of one try.
pub(crate) fn arguments(
    settings: &Settings,
    spec: &AgentSpec,
    step: &AgentStep,
    session: &Session,
    budget: Option<MicroUsd>,
) -> Vec<String> {
    let mut arguments: Vec<String> = Vec::new();
    let mut flag = |name: &str, value: &str| arguments.extend([name.to_owned(), value.to_owned()]);
    flag("--input-format", "stream-json");
    flag("--output-format", "stream-json");
    flag("--max-turns", &step.max_turns().to_string());
    flag("--setting-sources", "");
    if let Some(model) = model_of(settings, spec, step) {
        flag("--model", model);
    }
    if let Some(schema) = &step.output_schema {
        flag("--json-schema", schema.as_str());
    }
    if let Some(own) = &spec.settings {
        flag("--settings", own.as_str());
    }
    if let Some(budget) = budget {
        flag("--max-budget-usd", &budget.to_string());
    }
    match session {
        Session::New(id) => flag("--session-id", id),
        // In one argument: this flag goes without a value too, so that a value of its own could be another flag.
        Session::Resumed(id) => arguments.push(format!("--resume={id}")),
    }
    let mut flag = |name: &str, value: &str| arguments.extend([name.to_owned(), value.to_owned()]);
    // An empty text means none at all; leaving the flag out would mean all.
    flag("--tools", &base_names(&step.tools).join(","));
    if !settings.skips_permissions {
        flag("--permission-mode", spec.permission_mode.unwrap_or_default().as_str());
    }
    if let Some(inputs) = settings.inputs.as_ref().filter(|_| !step.tools.is_empty()) {
        // It works elsewhere, and may look into that too.
        arguments.push(format!("--add-dir={}", inputs.display()));
    }
    // The one flag that takes several values; what follows it begins with dashes.
    if !step.tools.is_empty() {
        arguments.push("--allowedTools".to_owned());
        arguments.extend(step.tools.iter().cloned());
    }
    if settings.skips_permissions {
        arguments.push("--dangerously-skip-permissions".to_owned());
    }
    let switches = [
        "--verbose",
        "--include-partial-messages",
        "--strict-mcp-config",
        "--disable-slash-commands",
        "--print",
    ];
    arguments.extend(switches.map(str::to_owned));
    arguments
}

/// The tools behind rules such as `Bash(git status:*)`, each once.
fn base_names(tools: &[String]) -> Vec<&str> {
    let mut names: Vec<&str> = Vec::new();
    for tool in tools {
        let name = tool.split('(').next().unwrap_or_default().trim();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Variables that are for us, for uploads or for the worker, and not for an agent.
const WITHHELD: [&str; 14] = [
    "S3_BUCKET",
    "DELETE_FILES_AFTER_UPLOAD",
    "EVENTBRIDGE_BUS_NAME",
    "TASK_DEFINITIONS_TABLE",
    "TENANT_ID",
    "APP_NAME",
    "INPUT_FILE",
    "DEFAULT_TIMEOUT",
    "MAX_CONCURRENT_CLAUDE",
    "CLAUDE_TIMEOUT",
    "CLAUDE_BIN",
    "CLAUDE_CODE_PATH",
    "CLAUDE_MODEL",
    "CLAUDE_SKIP_PERMISSIONS",
];
/// And all that begin so.
const WITHHELD_BEGINNINGS: [&str; 3] = ["AWS_", "TIDEMILL_", "AGENT_"];
/// The mark by which a worker finds what a former life of it left running. It is no secret, and a CLI without it could
/// outlive its task.
const SPAWN_MARK: &str = "TIDEMILL_SPAWN";
/// Where it finds what the task's dependencies left.
const INPUTS: &str = "TIDEMILL_INPUTS";

/// What the CLI gets unless the environment says otherwise.
const DEFAULTS: [(&str, &str); 6] = [
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    ("DISABLE_AUTOUPDATER", "1"),
    // One, and not none: only before it asks again does the CLI tell how long the API wants to be left alone.
    ("CLAUDE_CODE_MAX_RETRIES", "1"),
    // Without it the CLI does not tell delays of more than a minute.
    ("CLAUDE_CODE_RETRY_WATCHDOG", "1"),
    // A request that is repeated without a stream is paid for twice, and silent until it ends.
    ("CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK", "1"),
    // A prompt must not pull in files by their names.
    ("CLAUDE_CODE_DISABLE_FILE_MENTIONS", "1"),
];

/// The environment of the CLI. Ours holds what the worker lets through and what the definition gave; of it the CLI gets
/// all that is meant for it or for its tools.
pub(crate) fn environment(
    own: &[(OsString, OsString)],
    config_dir: &Path,
    temp_dir: &Path,
) -> Vec<(OsString, OsString)> {
    let is_withheld = |name: &OsString| {
        let Some(name) = name.to_str() else { return true };
        ![SPAWN_MARK, INPUTS].contains(&name)
            && (WITHHELD.contains(&name)
                || WITHHELD_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning)))
    };
    let mut environment: Vec<(OsString, OsString)> =
        own.iter().filter(|(name, _)| !is_withheld(name)).cloned().collect();
    for (name, value) in DEFAULTS {
        if !environment.iter().any(|(given, _)| given == name) {
            environment.push((name.into(), value.into()));
        }
    }
    let mut set = |name: &str, value: &Path| {
        environment.retain(|(given, _)| given != name);
        environment.push((name.into(), value.into()));
    };
    set("CLAUDE_CONFIG_DIR", config_dir);
    set("CLAUDE_CODE_TMPDIR", temp_dir);
    // Without a home the CLI takes the one of the user's entry and writes there.
    if !environment.iter().any(|(name, value)| name == "HOME" && !value.is_empty()) {
        environment.push(("HOME".into(), config_dir.into()));
    }
    environment
}

#[cfg(test)]
mod tests {
    use tidemill_model::Json;
    use tidemill_model::authored::agent::PermissionMode;

    use super::*;

    fn settings(variables: &[(&str, &str)]) -> Settings {
        let mut environment: Vec<(OsString, OsString)> =
            vec![("TIDEMILL_AGENT_FILE".into(), "/a.json".into())];
        environment.extend(variables.iter().map(|(name, value)| (name.into(), value.into())));
        Settings::read(&environment).unwrap()
    }

    fn arguments_of(settings: &Settings, spec: &AgentSpec, budget: Option<MicroUsd>) -> Vec<String> {
        arguments(settings, spec, &spec.steps[0], &Session::New("id-1".to_owned()), budget)
    }

    fn value_of<'a>(arguments: &'a [String], flag: &str) -> Option<&'a str> {
        let at = arguments.iter().position(|argument| argument == flag)?;
        Some(&arguments[at + 1])
    }

    #[test]
    fn a_plain_step_is_called_with_the_defaults() {
        let arguments = arguments_of(&settings(&[]), &AgentSpec::of_prompt("x"), None);
        for (flag, expected) in [
            ("--output-format", Some("stream-json")),
            ("--input-format", Some("stream-json")),
            ("--max-turns", Some("30")),
            ("--model", Some("claude-opus-4-5")),
            ("--permission-mode", Some("acceptEdits")),
            ("--setting-sources", Some("")),
            ("--session-id", Some("id-1")),
            ("--tools", Some("")),
            ("--json-schema", None),
            ("--settings", None),
            ("--allowedTools", None),
            ("--max-budget-usd", None),
            ("--resume", None),
        ] {
            assert_eq!(value_of(&arguments, flag), expected, "{flag}");
        }
        for switch in ["--verbose", "--print", "--strict-mcp-config", "--disable-slash-commands"] {
            assert!(arguments.contains(&switch.to_owned()), "{switch}");
        }
        assert!(!arguments.contains(&"--dangerously-skip-permissions".to_owned()));
    }

    #[test]
    fn what_a_step_says_is_passed_on() {
        let mut spec = AgentSpec::of_prompt("x");
        spec.permission_mode = Some(PermissionMode::DontAsk);
        spec.settings = Some(Json::parse(r#"{"hooks":{}}"#.to_owned()).unwrap());
        spec.steps[0].max_turns = Some(10);
        spec.steps[0].output_schema = Some(Json::parse(r#"{"type":"object"}"#.to_owned()).unwrap());
        spec.steps[0].tools = ["Read", "Bash(git log:*)", "Bash(ls, -l)"].map(str::to_owned).to_vec();
        let arguments = arguments_of(&settings(&[("CLAUDE_MODEL", "m-env")]), &spec, Some(MicroUsd(500_000)));
        for (flag, expected) in [
            ("--max-turns", "10"),
            ("--model", "m-env"),
            ("--permission-mode", "dontAsk"),
            ("--json-schema", r#"{"type":"object"}"#),
            ("--settings", r#"{"hooks":{}}"#),
            ("--tools", "Read,Bash"),
            ("--allowedTools", "Read"),
            ("--max-budget-usd", "0.50"),
        ] {
            assert_eq!(value_of(&arguments, flag), Some(expected), "{flag}");
        }
        let at = arguments.iter().position(|argument| argument == "--allowedTools").unwrap();
        assert_eq!(arguments[at + 1..at + 4], spec.steps[0].tools);
        assert!(arguments[at + 4].starts_with("--"));
    }

    #[test]
    fn the_nearest_model_counts_and_inherit_passes_none() {
        let settings = settings(&[("CLAUDE_MODEL", "env")]);
        for (of_spec, of_step, expected) in [
            (None, None, Some("env")),
            (Some("spec"), None, Some("spec")),
            (Some("spec"), Some("step"), Some("step")),
            (Some("inherit"), None, None),
            (Some("spec"), Some("inherit"), None),
        ] {
            let mut spec = AgentSpec::of_prompt("x");
            spec.model = of_spec.map(str::to_owned);
            spec.steps[0].model = of_step.map(str::to_owned);
            assert_eq!(model_of(&settings, &spec, &spec.steps[0]), expected);
            let arguments = arguments_of(&settings, &spec, None);
            assert_eq!(value_of(&arguments, "--model"), expected);
        }
    }

    #[test]
    fn permissions_are_skipped_only_on_demand_and_sessions_resumed() {
        let (settings, spec) = (settings(&[("CLAUDE_SKIP_PERMISSIONS", "true")]), AgentSpec::of_prompt("x"));
        let session = Session::Resumed("id-2".to_owned());
        let arguments = arguments(&settings, &spec, &spec.steps[0], &session, None);
        assert!(arguments.contains(&"--dangerously-skip-permissions".to_owned()));
        assert_eq!(value_of(&arguments, "--permission-mode"), None);
        assert!(arguments.contains(&"--resume=id-2".to_owned()), "{arguments:?}");
        assert_eq!(value_of(&arguments, "--session-id"), None);
    }

    #[test]
    fn only_ids_of_ours_are_sessions() {
        let id = "11111111-1111-4111-8111-111111111111";
        assert_eq!(Session::resumed(id).unwrap().id(), id);
        for noted in
            ["", "-", "--dangerously-skip-permissions", "--settings={}", "latest", "a b", "11111111-1111"]
        {
            assert_eq!(Session::resumed(noted), None, "{noted}");
        }
    }

    #[test]
    fn the_cli_gets_no_variable_that_is_not_for_it() {
        let own = [
            ("PATH", "/bin"),
            ("ANTHROPIC_API_KEY", "k"),
            ("CLAUDE_CODE_OAUTH_TOKEN", "t"),
            ("MY_SECRET", "s"),
            ("AWS_ACCESS_KEY_ID", "no"),
            ("AWS_SESSION_TOKEN", "no"),
            ("TIDEMILL_API_KEY", "no"),
            ("TIDEMILL_OUTPUT_DIR", "no"),
            ("TIDEMILL_INPUTS", "/in"),
            ("AGENT_MAX_ATTEMPTS", "no"),
            ("INPUT_FILE", "no"),
            ("S3_BUCKET", "no"),
            ("CLAUDE_MODEL", "no"),
            ("CLAUDE_CONFIG_DIR", "no"),
            ("CLAUDE_CODE_MAX_RETRIES", "4"),
        ];
        let own = own.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let mut names: Vec<String> = environment(&own, Path::new("/cfg"), Path::new("/tmp/x"))
            .into_iter()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect();
        names.sort();
        assert_eq!(
            names,
            [
                "ANTHROPIC_API_KEY=k",
                "CLAUDE_CODE_DISABLE_FILE_MENTIONS=1",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1",
                "CLAUDE_CODE_DISABLE_NONSTREAMING_FALLBACK=1",
                "CLAUDE_CODE_MAX_RETRIES=4",
                "CLAUDE_CODE_OAUTH_TOKEN=t",
                "CLAUDE_CODE_RETRY_WATCHDOG=1",
                "CLAUDE_CODE_TMPDIR=/tmp/x",
                "CLAUDE_CONFIG_DIR=/cfg",
                "DISABLE_AUTOUPDATER=1",
                "HOME=/cfg",
                "MY_SECRET=s",
                "PATH=/bin",
                "TIDEMILL_INPUTS=/in",
            ]
        );
    }

    #[test]
    fn an_agent_with_tools_may_look_at_what_others_left() {
        let mut spec = AgentSpec::of_prompt("x");
        let here = settings(&[("TIDEMILL_INPUTS", "/")]);
        assert!(!arguments_of(&here, &spec, None).contains(&"--add-dir=/".to_owned()), "it has no tools");
        spec.steps[0].tools = vec!["Read".to_owned()];
        assert!(arguments_of(&here, &spec, None).contains(&"--add-dir=/".to_owned()));
        let nowhere = settings(&[("TIDEMILL_INPUTS", "/nowhere")]);
        assert!(
            !arguments_of(&nowhere, &spec, None).iter().any(|argument| argument.starts_with("--add-dir"))
        );
    }
}
