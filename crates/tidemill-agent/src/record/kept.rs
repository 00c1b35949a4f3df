//! What outlives an attempt: outputs of finished steps and the session that was under way.
//!
//! A further attempt of the same run pays nothing twice. What is kept carries a digest of the task and its input, so
//! that nothing is taken for another task's.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tidemill_model::AgentSpec;
use tidemill_model::values::hex;

/// Where things are kept.
#[derive(Debug, Clone)]
pub(crate) struct Kept {
    home: Option<PathBuf>,
    digest: String,
}

/// The output of a finished step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeptStep {
    digest: String,
    output: Value,
    #[serde(default)]
    session_id: Option<String>,
}

/// The session of a step that was begun.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct KeptSession {
    digest: String,
    step: String,
    session_id: String,
}

impl Kept {
    pub(crate) fn new(home: Option<PathBuf>, spec: &AgentSpec, input: &Value) -> Self {
        // What an attempt may cost depends on what is left of a budget; what was found does not.
        let spec = AgentSpec { max_cost: None, ..spec.clone() };
        // Both are written with their keys in order.
        let text = serde_json::to_string(&(1, serde_json::to_value(spec).unwrap_or_default(), input));
        let digest = Sha256::digest(text.unwrap_or_default().as_bytes());
        Self { home, digest: hex::encode(&digest) }
    }

    /// The output of a step that an earlier attempt finished, with its session.
    pub(crate) fn step(&self, name: &str) -> Option<(Value, Option<String>)> {
        let kept: KeptStep = read(&self.step_file(name)?)?;
        (kept.digest == self.digest).then_some((kept.output, kept.session_id))
    }

    pub(crate) fn keep_step(&self, name: &str, output: &Value, session_id: &str) -> io::Result<()> {
        let Some(path) = self.step_file(name) else { return Ok(()) };
        let kept = KeptStep {
            digest: self.digest.clone(),
            output: output.clone(),
            session_id: Some(session_id.to_owned()),
        };
        write(&path, &kept)
    }

    /// The session of a step that an earlier attempt began.
    pub(crate) fn session(&self, step: &str) -> Option<String> {
        let kept: KeptSession = read(&self.session_file()?)?;
        (kept.digest == self.digest && kept.step == step).then_some(kept.session_id)
    }

    pub(crate) fn keep_session(&self, step: &str, session_id: &str) -> io::Result<()> {
        let Some(path) = self.session_file() else { return Ok(()) };
        let kept = KeptSession {
            digest: self.digest.clone(),
            step: step.to_owned(),
            session_id: session_id.to_owned(),
        };
        write(&path, &kept)
    }

    fn step_file(&self, name: &str) -> Option<PathBuf> {
        Some(self.home.as_ref()?.join("steps").join(format!("{name}.json")))
    }

    fn session_file(&self) -> Option<PathBuf> {
        Some(self.home.as_ref()?.join("session.json"))
    }
}

/// A file that cannot be read, whatever the reason, is one that is not there: the work is done again.
fn read<T: for<'de> Deserialize<'de>>(path: &Path) -> Option<T> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Writes a file whole or not at all.
fn write<T: Serialize>(path: &Path, value: &T) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let new = path.with_extension("new");
    let mut file = fs::File::options().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(&serde_json::to_vec(value)?)?;
    file.sync_all()?;
    fs::rename(&new, path)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_kept_is_found_only_by_the_same_task_and_input() {
        let home = std::env::temp_dir().join(format!("tidemill-agent-kept-{}", std::process::id()));
        let _ = fs::remove_dir_all(&home);
        let (spec, input) = (AgentSpec::of_prompt("a"), json!({ "x": 1 }));
        let kept = Kept::new(Some(home.clone()), &spec, &input);
        assert_eq!(kept.step("one"), None);
        kept.keep_step("one", &json!({ "y": 2 }), "s-1").unwrap();
        kept.keep_session("two", "s-2").unwrap();
        assert_eq!(kept.step("one"), Some((json!({ "y": 2 }), Some("s-1".to_owned()))));
        assert_eq!(kept.session("two").as_deref(), Some("s-2"));
        assert_eq!(kept.session("one"), None);
        for (spec, input) in [(AgentSpec::of_prompt("b"), input.clone()), (spec.clone(), json!({ "x": 2 }))] {
            let other = Kept::new(Some(home.clone()), &spec, &input);
            assert_eq!((other.step("one"), other.session("two")), (None, None));
        }
        fs::write(home.join("steps/one.json"), "{\"digest\":").unwrap();
        assert_eq!(kept.step("one"), None, "a broken file counts for nothing");
        fs::remove_dir_all(home).unwrap();
    }

    #[test]
    fn without_a_home_nothing_is_kept() {
        let kept = Kept::new(None, &AgentSpec::of_prompt("a"), &json!({}));
        kept.keep_step("one", &json!({}), "s").unwrap();
        kept.keep_session("one", "s").unwrap();
        assert_eq!((kept.step("one"), kept.session("one")), (None, None));
    }
}
