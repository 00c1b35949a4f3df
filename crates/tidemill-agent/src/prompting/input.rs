//! Where a task's input comes from: the argument, else `INPUT_FILE`, else `inputs/input.json`.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::Value;

use crate::failure::{AgentFailure, FailureKind};

/// The bytes of an input or of a task's description.
const FILE_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// The last place where an input is looked for, below the directory in which the process was started.
const INPUT_PLACE: &str = "inputs/input.json";

/// The input: an object.
pub(crate) fn load(
    argument: Option<&str>,
    input_file: Option<&Path>,
    directory: &Path,
) -> Result<Value, AgentFailure> {
    let (place, text) = match (argument, input_file) {
        (Some(text), _) => ("the argument".to_owned(), text.to_owned()),
        (None, Some(path)) => (format!("INPUT_FILE {}", path.display()), read(path, "INPUT_FILE")?),
        (None, None) => {
            let path = directory.join(INPUT_PLACE);
            if !path.exists() {
                let ways =
                    format!("give it as an argument, in a file that INPUT_FILE names, or in {INPUT_PLACE}");
                return Err(AgentFailure::new(FailureKind::NoInput, format!("there is no input: {ways}")));
            }
            (INPUT_PLACE.to_owned(), read(&path, "the input")?)
        }
    };
    let value: Value = serde_json::from_str(&text).map_err(|error| {
        AgentFailure::new(
            FailureKind::BrokenInput,
            format!("the input in {place} is not valid JSON: {error}"),
        )
    })?;
    if !value.is_object() {
        return Err(AgentFailure::new(
            FailureKind::BadTask,
            format!("the input in {place} must be a JSON object"),
        ));
    }
    Ok(value)
}

/// The text of a file; `what` names it in errors.
pub(crate) fn read(path: &Path, what: &str) -> Result<String, AgentFailure> {
    let shown = path.display();
    let failed = |error: io::Error| {
        let kind =
            if error.kind() == io::ErrorKind::NotFound { FailureKind::NoInput } else { FailureKind::Files };
        AgentFailure::new(kind, format!("{what} {shown} cannot be read: {error}"))
    };
    let size = fs::metadata(path).map_err(failed)?.len();
    if size > FILE_BYTES_MAX {
        let message = format!("{what} {shown} is {size} bytes; the limit is {FILE_BYTES_MAX}");
        return Err(AgentFailure::new(FailureKind::BadTask, message));
    }
    let bytes = fs::read(path).map_err(failed)?;
    String::from_utf8(bytes)
        .map_err(|_| AgentFailure::new(FailureKind::BrokenInput, format!("{what} {shown} is no UTF-8 text")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn directory(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("tidemill-agent-input-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("inputs")).unwrap();
        path
    }

    #[test]
    fn the_argument_goes_before_the_file_and_the_file_before_the_place() {
        let dir = directory("order");
        let file = dir.join("own.json");
        fs::write(&file, r#"{"from":"file"}"#).unwrap();
        fs::write(dir.join(INPUT_PLACE), r#"{"from":"place"}"#).unwrap();
        for (argument, input_file, expected) in [
            (Some(r#"{"from":"argument"}"#), Some(file.as_path()), "argument"),
            (None, Some(file.as_path()), "file"),
            (None, None, "place"),
        ] {
            assert_eq!(load(argument, input_file, &dir).unwrap(), json!({ "from": expected }));
        }
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let dir = directory("wrong");
        let file = dir.join("own.json");
        fs::write(&file, [0xff, 0xfe]).unwrap();
        let missing = dir.join("missing.json");
        for (argument, input_file, kind, expected) in [
            (Some("{"), None, FailureKind::BrokenInput, "the input in the argument is not valid JSON: EOF"),
            (Some("[1]"), None, FailureKind::BadTask, "the input in the argument must be a JSON object"),
            (None, Some(file.as_path()), FailureKind::BrokenInput, "INPUT_FILE"),
            (None, Some(missing.as_path()), FailureKind::NoInput, "INPUT_FILE"),
            (None, None, FailureKind::NoInput, "there is no input: give it as an argument"),
        ] {
            let failure = load(argument, input_file, &dir).unwrap_err();
            assert_eq!(failure.kind, kind, "{failure}");
            assert!(failure.message.starts_with(expected), "{failure}");
        }
        fs::remove_dir_all(dir).unwrap();
    }
}
