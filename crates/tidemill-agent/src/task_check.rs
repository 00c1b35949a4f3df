//! Whether a task can be carried out at all: checked before anything is paid for.
//!
//! The writer of the file already checked it. This process checks it again because anybody may start it.

use serde_json::Value;
use tidemill_model::authored::agent::{
    STEPS_MAX, TRIES_MAX, TRIES_MIN, TURNS_MAX, TURNS_MIN, is_output_file_name, is_step_name,
};
use tidemill_model::{AgentSpec, AgentStep};

use crate::failure::{AgentFailure, FailureKind};
use crate::prompting::schema::OutputSchema;

/// The file of the whole task's result.
pub(crate) const RESULT_FILE: &str = "task-result.json";

/// Checks what a file may hold that was not read by us.
pub(crate) fn check(spec: &AgentSpec) -> Result<(), AgentFailure> {
    let bad = |message: String| Err(AgentFailure::new(FailureKind::BadTask, message));
    if spec.steps.is_empty() || spec.steps.len() > STEPS_MAX {
        return bad(format!("steps has {} elements; it must have 1 to {STEPS_MAX}", spec.steps.len()));
    }
    if spec.max_attempts.is_some_and(|tries| !(TRIES_MIN..=TRIES_MAX).contains(&tries)) {
        return bad(format!("maxAttempts must be from {TRIES_MIN} to {TRIES_MAX}"));
    }
    if spec.settings.as_ref().is_some_and(|settings| !settings.is_object()) {
        return bad("settings must be an object".to_owned());
    }
    let last = spec.steps.len() - 1;
    for (index, step) in spec.steps.iter().enumerate() {
        let at = format!("steps[{index}]");
        let file = step.output_file_name();
        if !is_step_name(&step.name) {
            return bad(format!("{at}.name must be letters, digits, `_` and `-`"));
        }
        if spec.steps[..index].iter().any(|other| other.name == step.name) {
            return bad(format!("{at}.name is {:?}, and an earlier step has it too", step.name));
        }
        if step.prompt.trim().is_empty() {
            return bad(format!("{at}.prompt is empty"));
        }
        if !is_output_file_name(&file) {
            return bad(format!("{at}.outputFile must be a bare file name"));
        }
        if spec.steps[..index].iter().any(|other| other.output_file_name() == file) {
            return bad(format!("{at}.outputFile is {file:?}, and an earlier step has it too"));
        }
        if file == RESULT_FILE && index < last {
            return bad(format!("{at}.outputFile is {RESULT_FILE:?}, which is the last step's"));
        }
        if step.max_turns.is_some_and(|turns| !(TURNS_MIN..=TURNS_MAX).contains(&turns)) {
            return bad(format!("{at}.maxTurns must be from {TURNS_MIN} to {TURNS_MAX}"));
        }
    }
    Ok(())
}

/// The schema of a step's output, if it has one.
pub(crate) fn schema_of(step: &AgentStep) -> Result<Option<OutputSchema>, AgentFailure> {
    let Some(schema) = &step.output_schema else { return Ok(None) };
    let wrong = |error: String| bad_step(step, &format!("the output schema cannot be used: {error}"));
    let value: Value = schema.read().map_err(|error| wrong(error.to_string()))?;
    OutputSchema::new(&value).map(Some).map_err(wrong)
}

/// What is wrong with a step.
pub(crate) fn bad_step(step: &AgentStep, message: &str) -> AgentFailure {
    AgentFailure::new(FailureKind::BadTask, format!("step {}: {message}", step.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_checked_before_it_begins() {
        let step = |name: &str| AgentStep::of(name, "x");
        let of = |steps: Vec<AgentStep>| AgentSpec { steps, ..AgentSpec::default() };
        let file = |name: &str, file: &str| AgentStep { output_file: Some(file.to_owned()), ..step(name) };
        assert_eq!(check(&of(vec![step("a"), file("b", RESULT_FILE)])), Ok(()));
        for (spec, expected) in [
            (of(vec![]), "steps has 0 elements"),
            (of(vec![step("a"); 21]), "steps has 21 elements"),
            (of(vec![step("a"), step("a")]), "steps[1].name is \"a\", and an earlier step has it too"),
            (of(vec![step("a b")]), "steps[0].name must be"),
            (of(vec![AgentStep::of("a", " ")]), "steps[0].prompt is empty"),
            (of(vec![file("a", "../x")]), "steps[0].outputFile must be a bare file name"),
            (of(vec![file("a", "x"), file("b", "x")]), "steps[1].outputFile is \"x\", and an earlier"),
            (of(vec![file("a", RESULT_FILE), step("b")]), "steps[0].outputFile is \"task-result.json\""),
            (
                of(vec![AgentStep { max_turns: Some(0), ..step("a") }]),
                "steps[0].maxTurns must be from 1 to 200",
            ),
            (AgentSpec { max_attempts: Some(11), ..of(vec![step("a")]) }, "maxAttempts must be from 1 to 10"),
        ] {
            let failure = check(&spec).unwrap_err();
            assert!(failure.message.starts_with(expected), "{failure}");
        }
    }
}
