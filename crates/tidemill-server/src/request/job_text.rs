//! Job files as people write them. What reads YAML lives in the binary; this is its port.

use serde_json::Value;

/// Reads the text of a job file and checks it as far as the text alone can tell.
pub type JobTextReader = fn(&str) -> Result<WrittenJob, Vec<TextProblem>>;

/// A job file that was read.
pub struct WrittenJob {
    pub value: Value,
    /// Where the field is that a path such as `tasks[2].timeout` names.
    pub place_of: Box<dyn Fn(&str) -> TextPlace + Send + Sync>,
}

/// A place in a text; both count from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct TextPlace {
    pub line: u32,
    pub column: u32,
}

/// Something that is wrong with a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextProblem {
    pub place: TextPlace,
    /// The field; empty for the text as a whole or its grammar.
    pub path: String,
    pub message: String,
}

/// Reads JSON, for a server that was given nothing better.
pub(crate) fn read_json(text: &str) -> Result<WrittenJob, Vec<TextProblem>> {
    let bounded = |number: usize| u32::try_from(number.max(1)).unwrap_or(u32::MAX);
    match serde_json::from_str(text) {
        Ok(value) => {
            let place_of = Box::new(|_: &str| TextPlace { line: 1, column: 1 });
            Ok(WrittenJob { value, place_of })
        }
        Err(error) => {
            let place = TextPlace { line: bounded(error.line()), column: bounded(error.column()) };
            let message = format!("this server reads job files as JSON only: {error}");
            Err(vec![TextProblem { place, path: String::new(), message }])
        }
    }
}
