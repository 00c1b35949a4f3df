//! The help: commands in groups, examples, and lines that fit a terminal.

use std::fmt::Write as _;

use clap::Command;

use crate::display::line;

/// What no terminal tells the width of is as wide as this.
const WIDTH: usize = 80;
/// Longer lines are hard to read, however wide the terminal is.
const WIDTH_MAX: usize = 100;

/// The commands of the first level, each in one group.
const GROUPS: [(&str, &[&str]); 6] = [
    ("Run and follow work", &["run", "submit", "jobs", "tasks", "events"]),
    ("Serve", &["serve", "worker", "keys", "health", "alerts", "usage"]),
    ("Decide what went wrong", &["errors", "parked", "dead-letters"]),
    ("Describe work and reactions", &["definitions", "scripts", "subscriptions", "executions", "schema"]),
    ("Set up", &["config", "doctor", "completions", "aws"]),
    ("Look after a data directory", &["verify", "rebuild", "salvage", "export", "import"]),
];

/// Command lines for the help of the commands that they begin with. `JOB` and the like are to be filled in.
const EXAMPLES: &[&str] = &[
    "tidemill run job.yaml",
    "tidemill run job.yaml --resume",
    "tidemill serve",
    "tidemill serve --listen 0.0.0.0:7070 --no-worker",
    "tidemill worker --server https://tidemill.example.com",
    "tidemill submit job.yaml --watch",
    "tidemill --server https://tidemill.example.com submit job.yaml",
    "tidemill jobs list --status failed --since 24h",
    "tidemill jobs get 01a1b2c3d4",
    "tidemill jobs watch JOB",
    "tidemill jobs logs JOB --follow",
    "tidemill jobs cancel JOB --reason \"wrong input\"",
    "tidemill jobs resume JOB --task fetch",
    "tidemill jobs resume JOB --update job.yaml",
    "tidemill jobs add-tasks JOB more.yaml",
    "tidemill jobs budget JOB --usd 5",
    "tidemill jobs retry --status failed --since 2h",
    "tidemill tasks list --state failed",
    "tidemill tasks list --job JOB",
    "tidemill tasks get JOB/fetch",
    "tidemill tasks history JOB/fetch",
    "tidemill tasks logs JOB/fetch --follow",
    "tidemill tasks files JOB/fetch",
    "tidemill tasks retry JOB/fetch",
    "tidemill tasks cancel TASK",
    "tidemill events query --type \"Task Failed\" --since 1h",
    "tidemill events tail --job JOB",
    "tidemill events publish --type order.created --entity ORDER/17 --properties '{\"total\":5}'",
    "tidemill definitions list",
    "tidemill definitions get scrape",
    "tidemill definitions create scrape.yaml",
    "tidemill definitions update scrape.yaml",
    "tidemill definitions delete scrape",
    "tidemill scripts list",
    "tidemill scripts get greet",
    "tidemill scripts put greet greet.js",
    "tidemill scripts delete greet",
    "tidemill scripts test greet.js --event event.json",
    "tidemill scripts apply scripts --yes",
    "tidemill scripts explain --event EVENT",
    "tidemill subscriptions list",
    "tidemill subscriptions get greet-user-created",
    "tidemill subscriptions add --script greet --type user.created",
    "tidemill subscriptions enable greet-user-created",
    "tidemill subscriptions disable greet-user-created",
    "tidemill subscriptions delete greet-user-created",
    "tidemill executions list",
    "tidemill executions get EXECUTION",
    "tidemill dead-letters list",
    "tidemill dead-letters show LETTER",
    "tidemill dead-letters replay --all --kind script --dry-run",
    "tidemill dead-letters discard LETTER",
    "tidemill errors top",
    "tidemill errors list",
    "tidemill errors show CODE",
    "tidemill errors resolve CODE",
    "tidemill errors unrecoverable CODE",
    "tidemill errors reopen CODE",
    "tidemill errors ignore CODE",
    "tidemill errors candidates",
    "tidemill errors catalogue",
    "tidemill errors hash --message \"is missing\" --path order.id --county EU",
    "tidemill parked list",
    "tidemill parked show EXECUTION",
    "tidemill parked resume EXECUTION --output '{\"resolved\":true}'",
    "tidemill parked fail EXECUTION --reason \"cannot be mended\"",
    "tidemill parked bulks",
    "tidemill parked follow BULK",
    "tidemill parked cancel BULK",
    "tidemill usage",
    "tidemill usage budget set --usd 100",
    "tidemill usage budget show",
    "tidemill usage budget clear",
    "tidemill health",
    "tidemill alerts test",
    "tidemill keys create --role admin",
    "tidemill keys list",
    "tidemill keys revoke KEY",
    "tidemill aws plan --stage dev",
    "tidemill aws deploy --stage dev --code lambda.zip",
    "tidemill aws env --stage dev",
    "tidemill aws doctor --stage dev",
    "tidemill config",
    "tidemill doctor",
    "tidemill verify",
    "tidemill salvage --data .tidemill --to rescued",
    "tidemill rebuild",
    "tidemill export --out backup.jsonl",
    "tidemill import backup.jsonl --data restored",
    "tidemill completions bash",
    "tidemill schema job",
];

/// Examples of the whole program, which are those of its first steps.
const FIRST_STEPS: [&str; 4] = [
    "tidemill run job.yaml",
    "tidemill serve",
    "tidemill submit job.yaml --watch",
    "tidemill --server https://tidemill.example.com jobs list",
];

/// The program with groups and examples in its help.
pub(crate) fn dressed(command: Command) -> Command {
    let groups = groups(&command);
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
    );
    let command = command.help_template(template);
    let after = with_examples(&FIRST_STEPS, &command);
    let after =
        format!("--server, --key, --data, --backend and --json may stand before the command too.\n\n{after}");
    let path = command.get_name().to_owned();
    let command = command.after_help(after);
    below(command, &path)
}

/// The commands below one, with their examples.
fn below(mut command: Command, path: &str) -> Command {
    let names: Vec<_> = command.get_subcommands().map(|next| next.get_name().to_owned()).collect();
    for name in names {
        command = command.mut_subcommand(&name, |next| {
            let path = format!("{path} {name}");
            let examples: Vec<_> = EXAMPLES.iter().copied().filter(|line| is_of(line, &path)).collect();
            let after = with_examples(&examples, &next);
            below(if after.is_empty() { next } else { next.after_help(after) }, &path)
        });
    }
    command
}

/// Whether a command line begins with these words, flags before the command aside.
fn is_of(line: &str, path: &str) -> bool {
    line.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

/// Examples, and what the help ended with before.
fn with_examples(examples: &[&str], command: &Command) -> String {
    let before = command.get_after_help().map(ToString::to_string).unwrap_or_default();
    if examples.is_empty() {
        return before;
    }
    let lines: Vec<_> = examples.iter().map(|line| format!("  {line}")).collect();
    let after = if before.is_empty() { String::new() } else { format!("\n\n{before}") };
    format!("Examples:\n{}{after}", lines.join("\n"))
}

fn groups(command: &Command) -> String {
    let longest = GROUPS.iter().flat_map(|(_, names)| *names).map(|name| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (title, names) in GROUPS {
        let _ = writeln!(text, "{title}:");
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {name:longest$}  {about}");
        }
        text.push('\n');
    }
    text
}

/// Lines that are longer than the screen go on below their text.
pub(crate) fn wrapped(text: &str, columns: Option<usize>) -> String {
    let width = columns.unwrap_or(WIDTH).min(WIDTH_MAX);
    let mut lines = String::new();
    for line in text.lines() {
        lines += &fold(line.trim_end(), hang(line), width);
        lines.push('\n');
    }
    lines
}

/// One line as several of at most `width` columns, the later ones after `hang` blanks.
pub(crate) fn fold(text: &str, hang: usize, width: usize) -> String {
    let mut lines = String::new();
    let mut rest = text;
    let mut indent = 0;
    while line::columns(rest) + indent > width {
        let room = width.saturating_sub(indent).max(1);
        let start = rest.len() - rest.trim_start().len();
        let mut used = 0;
        let mut end = None;
        for (at, c) in rest.char_indices() {
            used += line::columns_of(c);
            if used > room + 1 {
                break;
            }
            if c == ' ' && at > start {
                end = Some(at);
            }
        }
        // A word that is longer than a line stays whole, so that it can be copied.
        let end = end.or_else(|| {
            rest.char_indices().skip_while(|(at, _)| *at <= start).find(|(_, c)| *c == ' ').map(|(at, _)| at)
        });
        let Some(end) = end else { break };
        lines += &" ".repeat(indent);
        lines += rest[..end].trim_end();
        lines.push('\n');
        rest = rest[end..].trim_start();
        indent = hang.min(width / 2);
    }
    lines += &" ".repeat(indent);
    lines + rest
}

/// Where the text of a line begins that describes something: behind the name and at least two blanks.
fn hang(line: &str) -> usize {
    let indent = line.len() - line.trim_start().len();
    if indent == 0 {
        return 0;
    }
    let named = line[indent..].find("  ").map(|gap| {
        let gap = indent + gap;
        gap + (line[gap..].len() - line[gap..].trim_start().len())
    });
    named.unwrap_or(indent)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::Arguments;

    fn leaves(command: &Command, path: &str, found: &mut Vec<String>) {
        let below: Vec<_> = command
            .get_subcommands()
            .filter(|next| next.get_name() != "help" && !next.is_hide_set())
            .collect();
        if below.is_empty() {
            found.push(path.to_owned());
        }
        for next in below {
            leaves(next, &format!("{path} {}", next.get_name()), found);
        }
    }

    /// Words as a shell takes them; quotes do not nest here.
    fn words(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut quote = None;
        for c in line.chars() {
            match (quote, c) {
                (Some(open), c) if c == open => quote = None,
                (None, '"' | '\'') => quote = Some(c),
                (None, ' ') => words.push(String::new()),
                (_, c) => words.last_mut().expect("there is one").push(c),
            }
        }
        words
    }

    #[test]
    fn every_command_is_in_one_group_and_has_an_example() {
        let command = Arguments::command();
        let grouped: Vec<_> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let mut known: Vec<_> =
            command.get_subcommands().filter(|known| !known.is_hide_set()).map(Command::get_name).collect();
        let mut sorted = grouped.clone();
        sorted.sort_unstable();
        known.sort_unstable();
        assert_eq!(sorted, known);
        let mut found = Vec::new();
        leaves(&command, "tidemill", &mut found);
        for path in found {
            // Without the feature the command has nothing below it.
            let example = EXAMPLES.iter().find(|line| is_of(line, &path));
            assert!(example.is_some(), "{path} has no example");
        }
    }

    #[test]
    fn every_example_is_a_command_line() {
        for line in EXAMPLES.iter().chain(&FIRST_STEPS).filter(|line| !is_of(line, "tidemill aws")) {
            let typed = words(line).into_iter().map(Into::into).collect();
            let parsed = Arguments::command().try_get_matches_from(crate::arguments::in_order(typed));
            if let Err(error) = parsed {
                panic!("{line}: {error}");
            }
        }
    }

    #[test]
    fn lines_go_on_below_their_text() {
        for (text, expected) in [
            ("short", "short\n"),
            ("one two three four five", "one two three\nfour five\n"),
            ("  --flag  one two three", "  --flag  one\n       two\n       three\n"),
            ("averylongwordthatdoesnotfit and more", "averylongwordthatdoesnotfit\nand more\n"),
            ("\n", "\n"),
        ] {
            assert_eq!(wrapped(text, Some(14)), expected);
        }
    }
}
