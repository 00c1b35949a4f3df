//! What an executor must know of a task beside its input: the command or the stored definition, environment, labels.
//!
//! It travels as JSON in `TaskOptions::execution`; the engine's decisions do not read it. A later release may add
//! fields, so unknown ones are passed over when it is read.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::authored::agent::AgentSpec;
use crate::authored::definition::{Runner, yes};
use crate::authored::field_problem::{FieldProblems, code};
use crate::values::id::TaskName;
use crate::values::json::Json;

/// The elements of an argument list.
pub const RUN_ARGUMENTS_MAX: usize = 1_000;
/// The bytes of a command, all arguments together. One argument of a Linux process may have 128 KiB.
pub const RUN_BYTES_MAX: usize = 100_000;
/// The variables that one task or definition sets.
pub const VARIABLES_MAX: usize = 200;
/// The bytes of a variable's name.
pub const VARIABLE_NAME_BYTES_MAX: usize = 128;
/// The bytes of all variables of one task or definition.
pub const VARIABLES_BYTES_MAX: usize = 64 * 1024;
/// The directories that one task or definition puts before `PATH`.
pub const PATH_DIRECTORIES_MAX: usize = 16;
/// The bytes of such a directory.
pub const PATH_BYTES_MAX: usize = 1_024;
/// The labels of one task or definition.
pub const LABELS_MAX: usize = 64;
/// The bytes of a label's name.
pub const LABEL_NAME_BYTES_MAX: usize = 64;
/// The bytes of a label's value.
pub const LABEL_VALUE_BYTES_MAX: usize = 256;

/// A stored definition at one version.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct Pinned {
    pub name: TaskName,
    pub version: u64,
}

/// A program to run: a list of arguments, or one text for the shell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Run {
    /// The program and its arguments, started without a shell.
    Argv(Vec<String>),
    /// A text for `/bin/sh -c`.
    Shell(String),
}

/// How a task is carried out, as it was submitted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunnerSpec {
    /// The stored definition; what it says holds, but for the fields below.
    // It stays the first field: `names_definition` looks no further.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub definition: Option<Pinned>,
    /// A command that the job brought along.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Run>,
    /// What an agent does that the job brought along.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentSpec>,
    /// A script that the job brought along.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// Variables with their literal values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Names of variables of the worker's environment, for a command or an agent that the job brought along.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// Directories before `PATH`, for the same.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl RunnerSpec {
    /// Whether this JSON form of a runner names a stored definition. It is not parsed.
    pub fn names_definition(json: &Json) -> bool {
        json.as_str().starts_with(r#"{"definition":"#)
    }
}

/// How a task is carried out, with its definition looked up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "ResolvedExecution")]
pub struct ResolvedRunner {
    pub runner: Runner,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Run>,
    /// What the runner `agent` does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentSpec>,
    /// What the runner `script` does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<String>,
    /// Variables with their literal values, the task's over the definition's.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// Names of variables of the worker's own environment that are handed over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// Directories before `PATH`; relative ones are below the working directory of the worker.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub path: Vec<String>,
    /// Whether the input of a stored command may be one of its arguments.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub input_arg: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<Pinned>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

impl ResolvedRunner {
    /// Work for a handler inside the program that embeds the engine.
    pub fn native() -> Self {
        Self {
            runner: Runner::Native,
            command: None,
            agent: None,
            script: None,
            env: BTreeMap::new(),
            secrets: Vec::new(),
            path: Vec::new(),
            input_arg: true,
            idle_timeout_ms: None,
            definition: None,
            labels: BTreeMap::new(),
        }
    }
}

/// The variables of the worker's environment that every command gets; `LC_*` beside them.
pub const PASSED_VARIABLES: [&str; 14] = [
    "PATH",
    "HOME",
    "USER",
    "SHELL",
    "TMPDIR",
    "PWD",
    "LANG",
    "TERM",
    "COLORTERM",
    "FORCE_COLOR",
    "S3_BUCKET",
    "DELETE_FILES_AFTER_UPLOAD",
    "EVENTBRIDGE_BUS_NAME",
    "TASK_DEFINITIONS_TABLE",
];

/// Variables that set the worker itself, or that it logs in with. Commands do not get them.
const OWN_VARIABLES: [&str; 11] = [
    "NODE_ENV",
    "CLAUDE_CODE_PATH",
    "CLAUDE_CONFIG_DIR",
    "CLAUDE_TIMEOUT",
    "MAX_CONCURRENT_CLAUDE",
    "CLAUDE_SKIP_PERMISSIONS",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_REGION",
    "TENANT_ID",
    "APP_NAME",
];

/// Beginnings of names that belong to the child protocol, the loader or the passed variables.
const RESERVED_BEGINNINGS: [&str; 4] = ["TIDEMILL_", "LD_", "DYLD_", "LC_"];
const RESERVED_NAMES: [&str; 2] = ["NODE_OPTIONS", "INPUT_FILE"];

/// Whether every command gets this variable from the worker's environment.
pub fn is_passed(name: &str) -> bool {
    PASSED_VARIABLES.contains(&name) || name.starts_with("LC_")
}

/// Whether the worker's environment decides what this variable is.
pub fn is_of_worker(name: &str) -> bool {
    is_passed(name) || OWN_VARIABLES.contains(&name)
}

/// Whether `name` can be the name of a variable: a letter or `_`, then letters, digits and `_`.
pub fn is_variable_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes.next().is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Whether no task or definition may set this variable.
pub fn is_reserved_variable(name: &str) -> bool {
    is_of_worker(name)
        || RESERVED_NAMES.contains(&name)
        || RESERVED_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

/// Variables by which a shell, an interpreter or a common tool can be made to run other code than it was started for.
const LOADING_NAMES: [&str; 27] = [
    "BASH_ENV",
    "ENV",
    "SHELLOPTS",
    "BASHOPTS",
    "PS4",
    "PROMPT_COMMAND",
    "IFS",
    "CDPATH",
    "EDITOR",
    "VISUAL",
    "PAGER",
    "BROWSER",
    "CLASSPATH",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
    "GCONV_PATH",
    "LOCPATH",
    "NLSPATH",
    "HOSTALIASES",
    "RUSTC",
    "RUSTC_WRAPPER",
    "MAKEFLAGS",
    "MAKEFILES",
    "GLOBIGNORE",
    "OPENSSL_CONF",
    "CLAUDE_BIN",
];
const LOADING_BEGINNINGS: [&str; 14] = [
    "BASH_FUNC_",
    "PYTHON",
    "PERL",
    "RUBY",
    "GEM_",
    "BUNDLE_",
    "NODE_",
    "NPM_",
    "npm_",
    "GIT_",
    "LUA_",
    "PHP",
    "CARGO_",
    "SSH_",
];

/// Whether setting this variable is known to run other code than the definition names. No definition opens it to others;
/// there are more such variables than anybody can list, so those that are not open stay closed whatever they are called.
pub fn is_loading_variable(name: &str) -> bool {
    LOADING_NAMES.contains(&name) || LOADING_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

/// Checks a command; `path` names the field.
pub(crate) fn check_run(path: &str, run: &Run, problems: &mut FieldProblems) {
    let parts: &[String] = match run {
        Run::Argv(arguments) => arguments,
        Run::Shell(text) => std::slice::from_ref(text),
    };
    match parts.first() {
        Some(program) if !program.trim().is_empty() => {}
        _ => problems.add(path, code::INVALID_VALUE, "names no program"),
    }
    if parts.len() > RUN_ARGUMENTS_MAX {
        let message = format!("has {} elements; the limit is {RUN_ARGUMENTS_MAX}", parts.len());
        problems.add(path, code::TOO_LONG, message);
    }
    let bytes: usize = parts.iter().map(String::len).sum();
    if bytes > RUN_BYTES_MAX {
        problems.add(path, code::TOO_LONG, format!("is {bytes} bytes; the limit is {RUN_BYTES_MAX}"));
    }
    if parts.iter().any(|part| part.contains('\0')) {
        problems.add(path, code::INVALID_VALUE, "holds a NUL character");
    }
}

/// Checks variables and their values; `path` names the field.
pub(crate) fn check_env(path: &str, env: &BTreeMap<String, String>, problems: &mut FieldProblems) {
    if env.len() > VARIABLES_MAX {
        problems.add(
            path,
            code::TOO_LONG,
            format!("has {} entries; the limit is {VARIABLES_MAX}", env.len()),
        );
    }
    let bytes: usize = env.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > VARIABLES_BYTES_MAX {
        problems.add(path, code::TOO_LONG, format!("is {bytes} bytes; the limit is {VARIABLES_BYTES_MAX}"));
    }
    for (name, value) in env {
        check_variable_name(path, name, problems);
        if value.contains('\0') {
            problems.add(entry_path(path, name), code::INVALID_VALUE, "holds a NUL character");
        }
    }
}

/// Checks the name of a variable that is set or handed over.
pub(crate) fn check_variable_name(path: &str, name: &str, problems: &mut FieldProblems) {
    let at = || entry_path(path, name);
    if name.len() > VARIABLE_NAME_BYTES_MAX {
        let message = format!("is {} bytes; the limit is {VARIABLE_NAME_BYTES_MAX}", name.len());
        problems.add(at(), code::TOO_LONG, message);
    } else if !is_variable_name(name) {
        let rule = "is no name of a variable: a letter or `_`, then letters, digits and `_`";
        problems.add(at(), code::INVALID_VALUE, rule);
    } else if is_reserved_variable(name) {
        problems.add(at(), code::RESERVED_VARIABLE, "is set by the worker and cannot be set here");
    }
}

/// Checks directories that come before `PATH`; `path` names the field.
pub(crate) fn check_path(path: &str, directories: &[String], problems: &mut FieldProblems) {
    if directories.len() > PATH_DIRECTORIES_MAX {
        let message = format!("has {} directories; the limit is {PATH_DIRECTORIES_MAX}", directories.len());
        problems.add(path, code::TOO_LONG, message);
    }
    for (at, directory) in directories.iter().enumerate() {
        let at = || format!("{path}[{at}]");
        if directory.len() > PATH_BYTES_MAX {
            let message = format!("is {} bytes; the limit is {PATH_BYTES_MAX}", directory.len());
            problems.add(at(), code::TOO_LONG, message);
        } else if directory.trim().is_empty() {
            problems.add(at(), code::INVALID_VALUE, "is empty");
        } else if directory.contains(':') || directory.chars().any(char::is_control) {
            let message = "holds a colon or a control character, and is one directory";
            problems.add(at(), code::INVALID_VALUE, message);
        }
    }
}

pub(crate) fn check_labels(path: &str, labels: &BTreeMap<String, String>, problems: &mut FieldProblems) {
    if labels.len() > LABELS_MAX {
        problems.add(
            path,
            code::TOO_LONG,
            format!("has {} entries; the limit is {LABELS_MAX}", labels.len()),
        );
    }
    for (name, value) in labels {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/');
        if name.is_empty() || name.len() > LABEL_NAME_BYTES_MAX || !name.bytes().all(fits) {
            let rule = format!(
                "is no name of a label: 1 to {LABEL_NAME_BYTES_MAX} letters, digits, `_`, `-`, `.` and `/`"
            );
            problems.add(entry_path(path, name), code::INVALID_VALUE, rule);
        }
        if value.len() > LABEL_VALUE_BYTES_MAX {
            let message = format!("is {} bytes; the limit is {LABEL_VALUE_BYTES_MAX}", value.len());
            problems.add(entry_path(path, name), code::TOO_LONG, message);
        }
        if value.chars().any(char::is_control) {
            problems.add(entry_path(path, name), code::INVALID_VALUE, "holds a control character");
        }
    }
}

/// The path of an entry; a name that somebody made very long is not repeated whole.
pub fn entry_path(path: &str, name: &str) -> String {
    let shown: String = name.chars().take(64).flat_map(char::escape_default).collect();
    format!("{path}.{shown}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems_of(check: impl FnOnce(&mut FieldProblems)) -> Vec<(String, &'static str)> {
        let mut problems = FieldProblems::default();
        check(&mut problems);
        problems.listed.into_iter().map(|problem| (problem.path, problem.code)).collect()
    }

    #[test]
    fn variables_of_the_worker_cannot_be_set() {
        for (name, expected) in [
            ("STORE_ID", None),
            ("_x", None),
            ("a1", None),
            ("", Some(code::INVALID_VALUE)),
            ("1A", Some(code::INVALID_VALUE)),
            ("A-B", Some(code::INVALID_VALUE)),
            ("A=B", Some(code::INVALID_VALUE)),
            ("PATH", Some(code::RESERVED_VARIABLE)),
            ("HOME", Some(code::RESERVED_VARIABLE)),
            ("LD_PRELOAD", Some(code::RESERVED_VARIABLE)),
            ("LC_ALL", Some(code::RESERVED_VARIABLE)),
            ("NODE_OPTIONS", Some(code::RESERVED_VARIABLE)),
            ("INPUT_FILE", Some(code::RESERVED_VARIABLE)),
            ("TIDEMILL_FENCE", Some(code::RESERVED_VARIABLE)),
            ("AWS_SECRET_ACCESS_KEY", Some(code::RESERVED_VARIABLE)),
            ("TENANT_ID", Some(code::RESERVED_VARIABLE)),
        ] {
            let env = BTreeMap::from([(name.to_owned(), "value".to_owned())]);
            let found = problems_of(|problems| check_env("env", &env, problems));
            assert_eq!(found.first().map(|(_, code)| *code), expected, "{name}");
        }
        let env = BTreeMap::from([("A".to_owned(), "a\0b".to_owned())]);
        let found = problems_of(|problems| check_env("tasks[1].env", &env, problems));
        assert_eq!(found, [("tasks[1].env.A".to_owned(), code::INVALID_VALUE)]);
    }

    #[test]
    fn every_variable_of_the_worker_is_reserved_and_none_twice() {
        let all = || PASSED_VARIABLES.iter().chain(&OWN_VARIABLES);
        let names: std::collections::BTreeSet<_> = all().collect();
        assert_eq!(names.len(), all().count());
        assert!(all().all(|name| is_reserved_variable(name)));
        assert!(!OWN_VARIABLES.iter().any(|name| is_passed(name)));
    }

    #[test]
    fn variables_that_load_code_are_known() {
        for (name, expected) in [
            ("BASH_ENV", true),
            ("PYTHONPATH", true),
            ("PERL5OPT", true),
            ("RUBYOPT", true),
            ("GIT_SSH_COMMAND", true),
            ("JAVA_TOOL_OPTIONS", true),
            ("STORE_ID", false),
            ("ENVIRONMENT", false),
        ] {
            assert_eq!(is_loading_variable(name), expected, "{name}");
        }
    }

    #[test]
    fn a_command_names_a_program_within_limits() {
        let many = vec!["x".to_owned(); RUN_ARGUMENTS_MAX + 1];
        for (run, expected) in [
            (Run::Argv(vec!["echo".to_owned(), String::new()]), vec![]),
            (Run::Shell("true".to_owned()), vec![]),
            (Run::Argv(vec![]), vec![code::INVALID_VALUE]),
            (Run::Argv(vec![String::new()]), vec![code::INVALID_VALUE]),
            (Run::Shell(" \n".to_owned()), vec![code::INVALID_VALUE]),
            (Run::Shell("a\0b".to_owned()), vec![code::INVALID_VALUE]),
            (Run::Argv(many), vec![code::TOO_LONG]),
            (Run::Shell("x".repeat(RUN_BYTES_MAX)), vec![]),
            (Run::Shell("x".repeat(RUN_BYTES_MAX + 1)), vec![code::TOO_LONG]),
        ] {
            let found = problems_of(|problems| check_run("run", &run, problems));
            assert_eq!(found.into_iter().map(|(_, code)| code).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn an_execution_says_whether_it_rests_on_a_definition_without_being_parsed() {
        let pinned = Pinned { name: TaskName::trusted("scrape"), version: 3 };
        let named = RunnerSpec { definition: Some(pinned), ..RunnerSpec::default() };
        let inline = RunnerSpec { run: Some(Run::Shell("true".to_owned())), ..RunnerSpec::default() };
        assert!(RunnerSpec::names_definition(&Json::of(&named)));
        assert!(!RunnerSpec::names_definition(&Json::of(&inline)));
        assert_eq!(Json::of(&named).read::<RunnerSpec>().unwrap(), named);
        assert_eq!(Json::of(&inline).as_str(), r#"{"run":"true"}"#);
        let newer = r#"{"run":["a","b"],"sandbox":{"x":1}}"#;
        let read: RunnerSpec = serde_json::from_str(newer).unwrap();
        assert_eq!(read.run, Some(Run::Argv(vec!["a".to_owned(), "b".to_owned()])));
    }
}
