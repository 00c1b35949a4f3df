//! What ran, as `tasks get` tells it.

use tidemill_api::{RanView, VariableOrigin};
use tidemill_model::work::runner_spec::Run;
use tidemill_worker::log_sink::plain;

/// The facts about the last attempt, in the order in which they are shown.
pub(super) fn facts(ran: RanView) -> Vec<(&'static str, String)> {
    let mut facts = vec![("ran on", format!("{}, process {}", ran.worker_id, ran.process_id))];
    facts.extend(ran.directory.map(|directory| ("directory", directory)));
    if ran.changed_since {
        facts.push(("command", "not known any more: the task was changed since".to_owned()));
    }
    facts.extend(ran.command.map(|command| ("command", line_of(&command, &ran.arguments))));
    facts.extend(ran.script.map(|script| ("script", folded(&script))));
    for prompt in ran.prompts {
        let name = if prompt.filled { "prompt" } else { "template" };
        facts.push((name, format!("{}: {}", prompt.step, folded(&prompt.text))));
    }
    let mut of_worker = Vec::new();
    for variable in ran.variables {
        match (variable.value, variable.origin) {
            // What the worker tells every task is the same each time; `--json` has it.
            (_, VariableOrigin::Tidemill) => {}
            (Some(value), _) => facts.push(("variable", format!("{}={}", variable.name, folded(&value)))),
            (None, VariableOrigin::Secret) => {
                facts.push(("variable", format!("{} (a secret of the worker)", variable.name)));
            }
            (None, _) => of_worker.push(variable.name),
        }
    }
    if !of_worker.is_empty() {
        facts.push(("variables", format!("{} of the worker", of_worker.join(", "))));
    }
    for dependency in ran.dependencies {
        let files: Vec<_> = dependency.artifacts.iter().map(|file| plain(&file.path).into_owned()).collect();
        let files = if files.is_empty() { String::new() } else { format!(", files: {}", files.join(", ")) };
        let output = dependency
            .output
            .map_or_else(|| "too large to be shown".to_owned(), |output| output.as_str().to_owned());
        facts.push(("given", format!("{}: {output}{files}", dependency.task_id)));
    }
    if ran.dependencies_omitted > 0 {
        facts.push(("given", format!("and by {} more", ran.dependencies_omitted)));
    }
    facts
}

fn line_of(command: &Run, arguments: &[String]) -> String {
    let mut words: Vec<String> = match command {
        Run::Shell(text) => return folded(text),
        Run::Argv(parts) => parts.iter().map(|part| quoted(part)).collect(),
    };
    words.extend(arguments.iter().map(|argument| quoted(argument)));
    words.join(" ")
}

/// As a shell takes it for one word.
fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./:=@%+,".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", folded(word).replace('\'', "'\\''"))
}

/// Lines stand below one another, under the first.
fn folded(text: &str) -> String {
    text.trim_end()
        .lines()
        .map(|line| plain(line).into_owned())
        .collect::<Vec<_>>()
        .join("\n                ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_that_was_changed_since_tells_so_in_place_of_a_command() {
        let ran = serde_json::json!({
            "run": 1, "fence": 1, "workerId": "w", "processId": 7, "startedAt": 0, "changedSince": true,
        });
        let told = facts(serde_json::from_value(ran).unwrap());
        assert_eq!(told[1], ("command", "not known any more: the task was changed since".to_owned()));
    }

    #[test]
    fn a_command_is_shown_as_a_shell_would_take_it() {
        let argv = |parts: &[&str]| Run::Argv(parts.iter().map(|&part| part.to_owned()).collect());
        for (command, arguments, expected) in [
            (argv(&["cp", "-r", "a b", ""]), vec![], "cp -r 'a b' ''"),
            (argv(&["it's"]), vec!["req-1".to_owned()], "'it'\\''s' req-1"),
            (Run::Shell("one\ntwo\n".to_owned()), vec!["req-1".to_owned()], "one\n                two"),
        ] {
            assert_eq!(line_of(&command, &arguments), expected);
        }
    }
}
