//! What the environment says: where things are, how long they may take, what the CLI is called with.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tidemill_model::authored::agent::{
    MODEL_DEFAULT, STEP_TIMEOUT_MILLIS_DEFAULT, TRIES_DEFAULT, TRIES_MAX, TRIES_MIN,
};
use tidemill_model::values::span::parse_text;

use crate::failure::{AgentFailure, FailureKind};

/// How long the CLI may be silent while no tool runs.
const IDLE_TIMEOUT_DEFAULT: Duration = Duration::from_secs(120);
/// The delay before the second try.
const RETRY_DELAY_MILLIS_DEFAULT: u64 = 2_000;
/// How often the CLI asks the API again by itself.
const OWN_RETRIES_DEFAULT: u64 = 1;
const IDLE_TIMEOUT_MILLIS_MIN: u64 = 1_000;
/// How long before the worker's limit everything has to be written.
const MARGIN_MILLIS_MAX: u64 = 5_000;

/// The settings of one task, read once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Settings {
    /// `TIDEMILL_AGENT_FILE`: what the agent does.
    pub(crate) agent_file: PathBuf,
    /// `INPUT_FILE`: the input, when it is no argument.
    pub(crate) input_file: Option<PathBuf>,
    /// `TIDEMILL_OUTPUT_DIR`: the directory of this attempt.
    pub(crate) output_dir: Option<PathBuf>,
    /// `TIDEMILL_INPUTS`: what the task's dependencies left, if they left anything.
    pub(crate) inputs: Option<PathBuf>,
    /// `TIDEMILL_AGENT_HOME`: a directory of this run that outlives the attempt.
    pub(crate) home: Option<PathBuf>,
    /// `TIDEMILL_AGENT_SESSION`: the session of an earlier attempt.
    pub(crate) session: Option<String>,
    /// `TIDEMILL_DEADLINE_MS`: when the worker ends this process, in epoch milliseconds.
    pub(crate) deadline_millis: Option<u64>,
    /// `TIDEMILL_TIMEOUT_MS`: the limit that the moment above comes from.
    pub(crate) timeout_millis: Option<u64>,
    /// `TIDEMILL_BUDGET`: the budget that the limit of costs is what is left of, in words; the task's own limit otherwise.
    pub(crate) budget: Option<String>,
    /// `TIDEMILL_RUN` and `TIDEMILL_ATTEMPT`, for the trace.
    pub(crate) run: Option<u64>,
    pub(crate) attempt: Option<u64>,
    /// `CLAUDE_BIN`, or `CLAUDE_CODE_PATH`: the program, when it is not the `claude` of the search path.
    pub(crate) program: Option<OsString>,
    /// `CLAUDE_MODEL`: for steps that name none.
    pub(crate) model: String,
    /// `CLAUDE_SKIP_PERMISSIONS`: the agent may do everything.
    pub(crate) skips_permissions: bool,
    /// `CLAUDE_CONFIG_DIR`: where the CLI keeps its state. It has a private place otherwise.
    pub(crate) config_dir: Option<PathBuf>,
    /// `DEFAULT_TIMEOUT`: for steps that have no time limit of their own.
    pub(crate) default_timeout_millis: u64,
    /// `AGENT_MAX_ATTEMPTS`: the tries within this attempt.
    pub(crate) max_tries: u32,
    /// `AGENT_RETRY_DELAY`: before the second try; it doubles with each further one.
    pub(crate) retry_delay_millis: u64,
    /// `CLAUDE_CODE_MAX_RETRIES`: how often the CLI asks the API again within one try.
    pub(crate) own_retries: u64,
    /// `AGENT_IDLE_TIMEOUT`: how long the CLI may be silent while no tool runs.
    pub(crate) idle_timeout: Duration,
}

impl Settings {
    pub(crate) fn read(environment: &[(OsString, OsString)]) -> Result<Self, AgentFailure> {
        let variables = Variables(environment);
        let path = |name| variables.get(name).map(PathBuf::from);
        let agent_file = path("TIDEMILL_AGENT_FILE").ok_or_else(|| {
            bad("TIDEMILL_AGENT_FILE is not set; it names the file that says what the agent does")
        })?;
        let max_tries = variables.number("AGENT_MAX_ATTEMPTS")?.unwrap_or(TRIES_DEFAULT.into());
        let range = u64::from(TRIES_MIN)..=u64::from(TRIES_MAX);
        if !range.contains(&max_tries) {
            let limits = format!("it must be from {TRIES_MIN} to {TRIES_MAX}");
            return Err(bad(format!("AGENT_MAX_ATTEMPTS is {max_tries}; {limits}")));
        }
        let idle_timeout = match variables.millis("AGENT_IDLE_TIMEOUT")? {
            Some(millis) if millis < IDLE_TIMEOUT_MILLIS_MIN => {
                return Err(bad(format!("AGENT_IDLE_TIMEOUT is {millis}ms; the least is 1s")));
            }
            Some(millis) => Duration::from_millis(millis),
            None => IDLE_TIMEOUT_DEFAULT,
        };
        Ok(Self {
            agent_file,
            input_file: path("INPUT_FILE"),
            output_dir: path("TIDEMILL_OUTPUT_DIR"),
            inputs: path("TIDEMILL_INPUTS").filter(|path| holds_anything(path)),
            home: path("TIDEMILL_AGENT_HOME"),
            session: variables.text("TIDEMILL_AGENT_SESSION")?.map(str::to_owned),
            deadline_millis: variables.number("TIDEMILL_DEADLINE_MS")?,
            timeout_millis: variables.number("TIDEMILL_TIMEOUT_MS")?,
            budget: variables.text("TIDEMILL_BUDGET")?.map(str::to_owned),
            run: variables.number("TIDEMILL_RUN")?,
            attempt: variables.number("TIDEMILL_ATTEMPT")?,
            program: variables
                .get("CLAUDE_BIN")
                .or_else(|| variables.get("CLAUDE_CODE_PATH"))
                .map(OsStr::to_owned),
            model: variables.text("CLAUDE_MODEL")?.unwrap_or(MODEL_DEFAULT).to_owned(),
            skips_permissions: variables.flag("CLAUDE_SKIP_PERMISSIONS")?,
            config_dir: path("CLAUDE_CONFIG_DIR"),
            default_timeout_millis: variables
                .millis("DEFAULT_TIMEOUT")?
                .unwrap_or(STEP_TIMEOUT_MILLIS_DEFAULT),
            max_tries: u32::try_from(max_tries).unwrap_or(TRIES_MAX),
            retry_delay_millis: variables.millis("AGENT_RETRY_DELAY")?.unwrap_or(RETRY_DELAY_MILLIS_DEFAULT),
            own_retries: variables.number("CLAUDE_CODE_MAX_RETRIES")?.unwrap_or(OWN_RETRIES_DEFAULT),
            idle_timeout,
        })
    }

    /// The moment when all work must have ended, so that everything can be written before the worker's limit. A short
    /// limit loses a quarter of itself and not all of it.
    pub(crate) fn last_moment_millis(&self, now_millis: u64) -> Option<u64> {
        let deadline = self.deadline_millis?;
        let margin = (deadline.saturating_sub(now_millis) / 4).min(MARGIN_MILLIS_MAX);
        Some(deadline.saturating_sub(margin))
    }
}

/// Whether a directory is there that is not empty.
fn holds_anything(path: &Path) -> bool {
    std::fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_some())
}

fn bad(message: impl Into<String>) -> AgentFailure {
    AgentFailure::new(FailureKind::BadTask, message)
}

struct Variables<'e>(&'e [(OsString, OsString)]);

impl<'e> Variables<'e> {
    /// A variable that is set and not empty.
    fn get(&self, name: &str) -> Option<&'e OsStr> {
        let (_, value) = self.0.iter().find(|(variable, _)| variable == name)?;
        (!value.is_empty()).then_some(value)
    }

    fn text(&self, name: &str) -> Result<Option<&'e str>, AgentFailure> {
        let Some(value) = self.get(name) else { return Ok(None) };
        value.to_str().map(Some).ok_or_else(|| bad(format!("{name} is no UTF-8")))
    }

    fn number(&self, name: &str) -> Result<Option<u64>, AgentFailure> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        text.parse().map(Some).map_err(|_| bad(format!("{name} is {text:?}; it must be a whole number")))
    }

    /// Milliseconds, or a text such as `30s`.
    fn millis(&self, name: &str) -> Result<Option<u64>, AgentFailure> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        let millis = text.parse().map_or_else(|_| parse_text(text), Ok);
        millis.map(Some).map_err(|wrong| bad(format!("{name} {wrong}")))
    }

    fn flag(&self, name: &str) -> Result<bool, AgentFailure> {
        match self.text(name)? {
            Some("true" | "1") => Ok(true),
            None | Some("false" | "0") => Ok(false),
            Some(other) => Err(bad(format!("{name} is {other:?}; it must be true or false"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, String> {
        let mut environment: Vec<(OsString, OsString)> =
            vec![("TIDEMILL_AGENT_FILE".into(), "/a.json".into())];
        environment.extend(variables.iter().map(|(name, value)| (name.into(), value.into())));
        Settings::read(&environment).map_err(|failure| failure.message)
    }

    #[test]
    fn what_is_left_out_has_its_default() {
        let settings = read(&[("CLAUDE_MODEL", ""), ("CLAUDE_BIN", "")]).unwrap();
        assert_eq!(settings.model, "claude-opus-4-5");
        assert_eq!((settings.max_tries, settings.default_timeout_millis), (3, 120_000));
        assert_eq!(settings.idle_timeout, Duration::from_secs(120));
        assert_eq!((settings.skips_permissions, settings.program), (false, None));
        assert!(Settings::read(&[]).unwrap_err().message.starts_with("TIDEMILL_AGENT_FILE is not set"));
    }

    #[test]
    fn what_is_set_is_read() {
        let settings = read(&[
            ("CLAUDE_MODEL", "inherit"),
            ("AGENT_MAX_ATTEMPTS", "1"),
            ("AGENT_IDLE_TIMEOUT", "90s"),
            ("DEFAULT_TIMEOUT", "5000"),
            ("CLAUDE_SKIP_PERMISSIONS", "true"),
            ("CLAUDE_CODE_PATH", "/opt/claude"),
            ("TIDEMILL_ATTEMPT", "2"),
        ])
        .unwrap();
        assert_eq!((settings.model.as_str(), settings.max_tries), ("inherit", 1));
        assert_eq!((settings.default_timeout_millis, settings.attempt), (5_000, Some(2)));
        assert_eq!(settings.idle_timeout, Duration::from_secs(90));
        assert_eq!(settings.program.as_deref(), Some(OsStr::new("/opt/claude")));
        assert!(settings.skips_permissions);
        let both = read(&[("CLAUDE_CODE_PATH", "/b"), ("CLAUDE_BIN", "/a")]).unwrap();
        assert_eq!(both.program.as_deref(), Some(OsStr::new("/a")));
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (name, value, expected) in [
            ("AGENT_MAX_ATTEMPTS", "0", "AGENT_MAX_ATTEMPTS is 0; it must be from 1 to 10"),
            ("AGENT_MAX_ATTEMPTS", "x", "AGENT_MAX_ATTEMPTS is \"x\"; it must be a whole number"),
            ("AGENT_IDLE_TIMEOUT", "5", "AGENT_IDLE_TIMEOUT is 5ms; the least is 1s"),
            (
                "DEFAULT_TIMEOUT",
                "2 min",
                "DEFAULT_TIMEOUT is \"2 min\"; it must be a whole number and a unit",
            ),
            (
                "CLAUDE_SKIP_PERMISSIONS",
                "yes",
                "CLAUDE_SKIP_PERMISSIONS is \"yes\"; it must be true or false",
            ),
            ("TIDEMILL_DEADLINE_MS", "-1", "TIDEMILL_DEADLINE_MS is \"-1\""),
        ] {
            let error = read(&[(name, value)]).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn work_ends_before_the_workers_limit() {
        for (deadline, now, expected) in
            [(200_000, 0, 195_000), (20_000, 0, 15_000), (4_000, 0, 3_000), (4_000, 5_000, 4_000)]
        {
            let settings = read(&[("TIDEMILL_DEADLINE_MS", &deadline.to_string())]).unwrap();
            assert_eq!(settings.last_moment_millis(now), Some(expected), "{deadline}");
        }
        assert_eq!(read(&[]).unwrap().last_moment_millis(7), None);
    }
}
