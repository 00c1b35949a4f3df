//! How an agent carries a task out: its steps, and what each of them may do.
//!
//! A definition or a job file is read into an [`AgentSpec`]; it travels as JSON to the process that drives the agent.
//! The limits are here, and the readers of a file name the field that breaks one.

mod fields;
mod output_schema;

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::authored::field_kinds::short_text;
use crate::authored::fields::fields;
use crate::spending::usage::{MICROS_PER_USD, dollars_of, micros_of};
use crate::values::json::Json;
use crate::values::span::Millis;

pub use fields::AgentFields;
pub(crate) use fields::{AgentShape, STEP_TIMEOUT_MILLIS_ALLOWED, asks, read_inline};
use fields::{max_turns, output_file, output_schema, step_name, step_prompt, step_timeout, tools};

/// The steps of one task.
pub const STEPS_MAX: usize = 20;
/// The bytes of a step's name.
pub const STEP_NAME_BYTES_MAX: usize = 100;
/// The name of the only step of a task that does not name it.
pub const STEP_NAME_DEFAULT: &str = "task-step";
/// The bytes of a prompt's template.
pub const PROMPT_BYTES_MAX: usize = 200 * 1024;
/// The bytes of an output schema, as JSON. It is one argument of a process, and Linux allows 128 KiB for one.
pub const OUTPUT_SCHEMA_BYTES_MAX: usize = 100 * 1024;
/// The bytes of an output file's name.
pub const OUTPUT_FILE_BYTES_MAX: usize = 200;
/// The tools that a step may be given.
pub const TOOLS_MAX: usize = 100;
/// The bytes of a tool's name, with the pattern in brackets.
pub const TOOL_BYTES_MAX: usize = 200;
/// The bytes of a model's name.
pub const MODEL_BYTES_MAX: usize = 200;
/// The bytes of the CLI's settings, as JSON. They are one argument of a process too.
pub const SETTINGS_BYTES_MAX: usize = 100 * 1024;
pub const TURNS_MIN: u32 = 1;
pub const TURNS_MAX: u32 = 200;
pub const TURNS_DEFAULT: u32 = 30;
/// The tries within one attempt of the task.
pub const TRIES_MIN: u32 = 1;
pub const TRIES_MAX: u32 = 10;
/// The tries when neither the definition nor `AGENT_MAX_ATTEMPTS` says anything.
pub const TRIES_DEFAULT: u32 = 3;
/// The shortest time of a step, in milliseconds. Less counts as this.
pub const STEP_TIMEOUT_MILLIS_MIN: u64 = 1_000;
/// The longest time of a step, in milliseconds: 15 minutes. More counts as this.
pub const STEP_TIMEOUT_MILLIS_MAX: u64 = 900_000;
/// The time of a step that has none of its own, when the setting `DEFAULT_TIMEOUT` is at its default.
pub const STEP_TIMEOUT_MILLIS_DEFAULT: u64 = 120_000;
/// The time of a step when there is no `DEFAULT_TIMEOUT` at all.
pub const STEP_TIMEOUT_MILLIS_FALLBACK: u64 = 300_000;
/// The most that one attempt may be allowed to cost: a million dollars.
pub const COST_MICROS_MAX: u64 = 1_000_000 * MICROS_PER_USD;
/// The model of a task that names none, unless `CLAUDE_MODEL` does.
pub const MODEL_DEFAULT: &str = "claude-opus-4-5";
/// As a model: pass none, the CLI chooses.
pub const MODEL_INHERIT: &str = "inherit";

/// How an agent carries out a task.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AgentSpec {
    /// At least one, carried out in this order. The output of the last one is the task's.
    pub steps: Vec<AgentStep>,
    /// For steps that name none; `inherit` leaves the choice to the CLI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// `acceptEdits` when it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permission_mode: Option<PermissionMode>,
    /// Tries within one attempt of the task, for failures that pass: 1 to 10.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// Whether a further try goes on with the session of the failed one instead of starting over.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub resume_session: bool,
    /// Settings of the CLI, such as `hooks`: an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub settings: Option<Json>,
    /// What one attempt may cost, in dollars.
    #[serde(default, rename = "maxCostUsd", skip_serializing_if = "Option::is_none")]
    pub max_cost: Option<MicroUsd>,
}

fields! {
    /// One prompt and what must come of it.
    #[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(rename_all = "camelCase")]
    pub struct AgentStep {
        /// Letters, digits, `_` and `-`; no two steps of a task have the same.
        pub name: String = step_name()
            => "Unique among the steps; `step-1`, `step-2` and so on when it is left out.",
        /// A template: `{{path}}` stands for a value of the input, `{{steps.NAME.path}}` for one of an earlier output.
        pub prompt: String = step_prompt(),
        /// A JSON Schema of type object that the output must satisfy. Without one the output is `{"result": TEXT}`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub output_schema: Option<Json> = output_schema()
            => "A JSON Schema of type object that the output must satisfy. Nothing is fetched for it.",
        /// A bare file name for the output; `NAME.json` when it is left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub output_file: Option<String> = output_file() => "A bare file name for the output.",
        /// 1 to 200; 30 when it is left out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub max_turns: Option<u32> = max_turns() => "30 when it is left out.",
        /// The tools that the agent may use, such as `Read` or `Bash(git status:*)`. None means no tools.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        pub tools: Vec<String> = tools() => "The tools that the agent may use in this step.",
        /// How long one try of the step may take; held between 1s and 15m.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub timeout: Option<Millis> = step_timeout() => "How long one try may take; held between 1s and 15m.",
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub model: Option<String> = short_text("model", MODEL_BYTES_MAX) => "The model of this step.",
    }
}

impl AgentSpec {
    /// A task of one step with this prompt, all else left out.
    pub fn of_prompt(prompt: impl Into<String>) -> Self {
        Self { steps: vec![AgentStep::of(STEP_NAME_DEFAULT, prompt)], ..Self::default() }
    }
}

impl AgentStep {
    /// A step with this prompt, all else left out.
    pub fn of(name: impl Into<String>, prompt: impl Into<String>) -> Self {
        Self { name: name.into(), prompt: prompt.into(), ..Self::default() }
    }

    /// How long one try may take, in milliseconds. `default` is the setting `DEFAULT_TIMEOUT`.
    pub fn timeout_millis(&self, default: Option<u64>) -> u64 {
        let wanted = self.timeout.map(|timeout| timeout.0).or(default);
        let wanted = wanted.unwrap_or(STEP_TIMEOUT_MILLIS_FALLBACK);
        wanted.clamp(STEP_TIMEOUT_MILLIS_MIN, STEP_TIMEOUT_MILLIS_MAX)
    }

    pub fn max_turns(&self) -> u32 {
        self.max_turns.unwrap_or(TURNS_DEFAULT).clamp(TURNS_MIN, TURNS_MAX)
    }

    /// The name of the file that holds the output.
    pub fn output_file_name(&self) -> String {
        self.output_file.clone().unwrap_or_else(|| format!("{}.json", self.name))
    }
}

/// Whether `name` can be the name of a step: letters, digits, `_` and `-`, so that it can stand in a placeholder.
pub fn is_step_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    !name.is_empty() && name.len() <= STEP_NAME_BYTES_MAX && name.bytes().all(fits)
}

/// Whether `name` can be the name of an output file: one part of a path, and no hidden one.
pub fn is_output_file_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= OUTPUT_FILE_BYTES_MAX
        && !name.starts_with('.')
        && !name.contains(['/', '\\'])
        && !name.chars().any(char::is_control)
}

/// What an agent may do without being asked. To let it do everything is a setting of the worker
/// (`CLAUDE_SKIP_PERMISSIONS`) and no matter of a definition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PermissionMode {
    /// Edit files below its directory, and what `tools` allows.
    #[default]
    AcceptEdits,
    /// What `tools` allows and nothing else.
    DontAsk,
    /// Read and plan, change nothing.
    Plan,
}

impl PermissionMode {
    pub const ALL: [Self; 3] = [Self::AcceptEdits, Self::DontAsk, Self::Plan];

    /// As it is written in files and as the CLI knows it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AcceptEdits => "acceptEdits",
            Self::DontAsk => "dontAsk",
            Self::Plan => "plan",
        }
    }
}

/// An amount of money in millionths of a dollar. In JSON it is a number of dollars.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MicroUsd(pub u64);

impl MicroUsd {
    /// The nearest amount; `None` for what is no amount of money up to [`COST_MICROS_MAX`].
    pub fn from_dollars(dollars: f64) -> Option<Self> {
        let is_amount = dollars.is_finite() && dollars >= 0.0;
        is_amount.then(|| Self(micros_of(dollars))).filter(|amount| amount.0 <= COST_MICROS_MAX)
    }

    pub fn dollars(self) -> f64 {
        dollars_of(self.0)
    }
}

impl fmt::Display for MicroUsd {
    /// Dollars with two to six decimals: `0.50`, `0.00081`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let decimals = format!("{:06}", self.0 % MICROS_PER_USD);
        let kept = decimals.trim_end_matches('0').len().max(2);
        write!(f, "{}.{}", self.0 / MICROS_PER_USD, &decimals[..kept])
    }
}

impl Serialize for MicroUsd {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.dollars())
    }
}

impl<'de> Deserialize<'de> for MicroUsd {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let dollars = f64::deserialize(deserializer)?;
        let wrong = || serde::de::Error::custom(format!("{dollars} is no amount of dollars up to 1000000"));
        Self::from_dollars(dollars).ok_or_else(wrong)
    }
}

impl JsonSchema for MicroUsd {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Usd".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "number",
            "description": "Dollars, exact to a millionth.",
            "minimum": 0,
            "maximum": COST_MICROS_MAX / MICROS_PER_USD
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_steps_time_is_its_own_or_the_default_and_held_in_its_bounds() {
        for (own, default, expected) in [
            (None, None, 300_000),
            (None, Some(120_000), 120_000),
            (Some(60_000), Some(120_000), 60_000),
            (Some(10), None, 1_000),
            (Some(3_600_000), None, 900_000),
            (None, Some(0), 1_000),
            (None, Some(u64::MAX), 900_000),
        ] {
            let step = AgentStep { timeout: own.map(Millis), ..AgentStep::of("a", "x") };
            assert_eq!(step.timeout_millis(default), expected, "{own:?} {default:?}");
        }
    }

    #[test]
    fn names_of_steps_and_files() {
        for (name, fits) in
            [("a", true), ("Find_fonts-2", true), ("", false), ("a.b", false), ("a b", false), ("é", false)]
        {
            assert_eq!(is_step_name(name), fits, "{name}");
        }
        for (name, fits) in
            [("tags.json", true), ("tags", true), ("", false), ("..", false), (".x", false), ("a/b", false)]
        {
            assert_eq!(is_output_file_name(name), fits, "{name}");
        }
    }

    #[test]
    fn a_spec_is_written_short_and_read_back() {
        let mut spec = AgentSpec::of_prompt("do it");
        let short = json!({ "steps": [{ "name": "task-step", "prompt": "do it" }] });
        assert_eq!(serde_json::to_value(&spec).unwrap(), short);
        spec.max_cost = Some(MicroUsd(1_250_000));
        spec.resume_session = true;
        spec.permission_mode = Some(PermissionMode::DontAsk);
        spec.settings = Some(Json::empty_object());
        spec.steps[0].timeout = Some(Millis(5_000));
        spec.steps[0].tools = vec!["Read".to_owned()];
        let written = serde_json::to_value(&spec).unwrap();
        assert_eq!(written["maxCostUsd"], json!(1.25));
        assert_eq!(written["permissionMode"], "dontAsk");
        assert_eq!(serde_json::from_value::<AgentSpec>(written).unwrap(), spec);
        for mode in PermissionMode::ALL {
            assert_eq!(serde_json::to_value(mode).unwrap(), mode.as_str());
        }
    }

    #[test]
    fn amounts_of_money() {
        for (dollars, expected) in [
            (0.0, Some("0.00")),
            (0.5, Some("0.50")),
            (0.000_81, Some("0.00081")),
            (12.345_678_9, Some("12.345679")),
            (1e6, Some("1000000.00")),
            (1.1e6, None),
            (-0.1, None),
            (f64::NAN, None),
        ] {
            let shown = MicroUsd::from_dollars(dollars).map(|amount| amount.to_string());
            assert_eq!(shown.as_deref(), expected, "{dollars}");
        }
    }
}
