//! From what was typed to what is parsed, and from what the parser says to one line.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use tidemill_model::authored::nearest::nearest;

/// Flags of commands that may stand before the command too, and take a value.
const EARLY_WITH_VALUE: [&str; 4] = ["--server", "--key", "--data", "--backend"];
/// The same without a value.
const EARLY: [&str; 1] = ["--json"];
/// The one flag that the program itself has, with a value.
const OWN: &str = "--config";

/// Puts flags that stand before the command behind its name, where they belong.
pub(crate) fn in_order(typed: Vec<OsString>) -> Vec<OsString> {
    let mut typed = typed.into_iter().peekable();
    let mut ordered: Vec<OsString> = typed.next().into_iter().collect();
    let mut early = Vec::new();
    while let Some(argument) = typed.peek() {
        let text = argument.to_string_lossy().into_owned();
        let (name, is_whole) = text.split_once('=').map_or((text.as_str(), false), |(name, _)| (name, true));
        let place = match name {
            OWN => &mut ordered,
            name if EARLY_WITH_VALUE.contains(&name) || EARLY.contains(&name) => &mut early,
            _ => break,
        };
        place.extend(typed.next());
        if !is_whole && !EARLY.contains(&name) {
            place.extend(typed.next());
        }
    }
    if let Some(command) = typed.next() {
        // Without a command they are about nothing.
        let is_command = !command.to_string_lossy().starts_with('-');
        ordered.push(command);
        ordered.extend(early.into_iter().filter(|_| is_command));
    }
    ordered.extend(typed);
    ordered
}

/// Whether programs are to read what is said, wrong arguments included.
pub(crate) fn wants_json(typed: &[OsString]) -> bool {
    typed.iter().take_while(|argument| *argument != "--").any(|argument| argument == "--json")
}

/// What is wrong with the arguments, in one line. `command` is the whole program, built.
pub(crate) fn problem(error: &clap::Error, command: &clap::Command, typed: &[OsString]) -> String {
    let (path, current) = walk(command, typed);
    let text = error.render().to_string();
    let paragraph = text.lines().take_while(|line| !line.trim().is_empty());
    let line = paragraph.map(str::trim).collect::<Vec<_>>().join(" ");
    let line = line.strip_prefix("error: ").unwrap_or(&line);
    let hint = meant(error, current).map_or_else(String::new, |word| format!("; did you mean {word}?"));
    let end = if hint.is_empty() { ";" } else { "" };
    format!("{line}{hint}{end} see `{path} --help`")
}

/// The command that the arguments lead to, with its name in full.
fn walk<'a>(command: &'a clap::Command, typed: &[OsString]) -> (String, &'a clap::Command) {
    let mut path = command.get_name().to_owned();
    let mut current = command;
    for argument in typed.iter().skip(1) {
        if let Some(next) = current.find_subcommand(argument) {
            path = format!("{path} {}", next.get_name());
            current = next;
        }
    }
    (path, current)
}

fn meant(error: &clap::Error, current: &clap::Command) -> Option<String> {
    let given = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand => {
            let known = current.get_subcommands().filter(|known| !known.is_hide_set());
            nearest(given(ContextKind::InvalidSubcommand)?, known.map(clap::Command::get_name))
                .map(str::to_owned)
        }
        ErrorKind::UnknownArgument => {
            let known = current.get_arguments().filter_map(clap::Arg::get_long);
            let given = given(ContextKind::InvalidArg)?.strip_prefix("--")?;
            nearest(given, known).map(|name| format!("--{name}"))
        }
        ErrorKind::InvalidValue => {
            let Some(ContextValue::Strings(known)) = error.get(ContextKind::ValidValue) else { return None };
            nearest(given(ContextKind::InvalidValue)?, known.iter().map(String::as_str)).map(str::to_owned)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_before_the_command_are_put_behind_it() {
        for (typed, expected) in [
            ("tidemill jobs list", "tidemill jobs list"),
            ("tidemill --server URL jobs list", "tidemill jobs --server URL list"),
            ("tidemill --json --data=d jobs list", "tidemill jobs --json --data=d list"),
            ("tidemill --config f --key k jobs", "tidemill --config f jobs --key k"),
            ("tidemill --config=f jobs", "tidemill --config=f jobs"),
            ("tidemill --server URL", "tidemill"),
            ("tidemill --server", "tidemill"),
            ("tidemill --server URL --help", "tidemill --help"),
            ("tidemill --help", "tidemill --help"),
            ("tidemill --nonsense jobs", "tidemill --nonsense jobs"),
            ("tidemill", "tidemill"),
        ] {
            let words = |text: &str| text.split(' ').map(OsString::from).collect::<Vec<_>>();
            assert_eq!(in_order(words(typed)), words(expected), "{typed}");
        }
    }
}
