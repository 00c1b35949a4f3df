//! What a screen of 80 columns shows, compared with texts in the repository.
//!
//! `UPDATE_SNAPSHOTS=1` writes them anew; look at the change.

use std::path::Path;
use std::process::Command;

use crate::sandbox::Sandbox;
use crate::terminal::on_terminal;

const COLUMNS: u16 = 80;

fn check(name: &str, shown: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/screens").join(name);
    if std::env::vars_os().any(|(name, _)| name == "UPDATE_SNAPSHOTS") {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, shown).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        kept, shown,
        "{name} is out of date; look at the change and run again with UPDATE_SNAPSHOTS=1"
    );
}

/// The text with the digits of ids made the same, since they differ from run to run.
fn settled(text: &str) -> String {
    let mut settled = String::new();
    let mut is_id = false;
    for c in text.replace("\r\n", "\n").chars() {
        let is_digit = matches!(c, '0'..='9' | 'a'..='f');
        is_id = is_digit && (is_id || settled.ends_with("job-"));
        settled.push(if is_id { '0' } else { c });
    }
    settled
}

fn screen(sandbox: &Sandbox, arguments: &[&str]) -> String {
    let mut command = sandbox.command(arguments);
    command.env("NO_COLOR", "1");
    settled(&on_terminal(command, 50, COLUMNS, Command::stdout))
}

fn fits(text: &str, what: &str) {
    for line in text.lines() {
        // An address or a command line that is to be copied stays whole.
        let is_whole = !line.trim().contains(' ') || line.starts_with("  tidemill ");
        assert!(line.chars().count() <= usize::from(COLUMNS) || is_whole, "{what}: {line}");
    }
}

#[test]
fn help_fits_and_is_grouped() {
    let sandbox = Sandbox::new();
    let help = screen(&sandbox, &["--help"]);
    // What it says depends on how the program was built.
    let help: Vec<_> = help.lines().filter(|line| !line.starts_with("  aws ")).collect();
    check("help.txt", &(help.join("\n") + "\n"));
    check("jobs_help.txt", &screen(&sandbox, &["jobs", "--help"]));
    for command in [
        "run",
        "serve",
        "worker",
        "submit",
        "tasks",
        "events",
        "definitions",
        "scripts",
        "subscriptions",
        "executions",
        "dead-letters",
        "errors",
        "parked",
        "usage",
        "health",
        "alerts",
        "keys",
        "config",
        "doctor",
        "verify",
        "salvage",
        "rebuild",
        "export",
        "import",
        "completions",
        "schema",
    ] {
        let help = screen(&sandbox, &[command, "--help"]);
        fits(&help, command);
        assert!(help.contains("Examples:\n  tidemill "), "{command}: {help}");
    }
}

#[test]
fn tables_fit_with_all_their_columns() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "job.yaml",
        "name: nightly import of everything\ntasks:\n- {taskId: fetch-all-records, run: 'true'}\n- {taskId: then, run: 'true', dependsOn: fetch-all-records}\n",
    );
    let report = sandbox.run(&["run", "job.yaml", "--json"]).ok().json();
    let job = report["jobId"].as_str().unwrap();
    for (name, arguments) in [
        ("jobs_list.txt", &["jobs", "list"][..]),
        ("jobs_get.txt", &["jobs", "get", job]),
        ("tasks_list.txt", &["tasks", "list", "--job", job]),
    ] {
        let shown = screen(&sandbox, arguments);
        fits(&shown, name);
        let is_settled =
            |line: &&str| !["created ", "completed "].iter().any(|begin| line.starts_with(begin));
        let shown: Vec<_> = shown.lines().filter(is_settled).collect();
        check(name, &times_out(&shown.join("\n")));
    }
    let say =
        "echo a long explanation of what went wrong with this particular record of the input >&2; exit 1";
    sandbox.write("bad.yaml", &format!("tasks:\n- {{taskId: fetch-all-records, run: '{say}', retry: 1}}\n"));
    let report = sandbox.run(&["run", "bad.yaml", "--json"]).json();
    let job = report["jobId"].as_str().unwrap();
    for arguments in [
        &["jobs", "get", job][..],
        &["tasks", "list"],
        &["dead-letters", "list"],
        &["tasks", "history", &format!("{job}/fetch-all-records")],
        &["events", "query"],
    ] {
        fits(&screen(&sandbox, arguments), arguments[0]);
    }
    // Whole ids and times, and nothing of them twice.
    let task = format!("TASK/{job}_fetch-all-records");
    for arguments in [&["tasks", "history", &format!("{job}/fetch-all-records")][..], &["events", "query"]] {
        let shown = on_terminal(sandbox.command(arguments), 50, COLUMNS, Command::stdout).replace('\r', "");
        let lines: Vec<_> = shown.lines().collect();
        assert!(lines.iter().any(|line| line.trim() == task), "{task} is whole: {shown}");
        let is_first = |line: &&&str| line.starts_with("20") && line.contains("Z  Task ");
        assert!(lines.iter().filter(is_first).count() >= 3, "times are whole: {shown}");
    }
    let letters = sandbox.run(&["dead-letters", "list", "--json"]).ok().json();
    let letter = letters["items"][0]["id"].as_str().unwrap();
    let shown = on_terminal(sandbox.command(&["dead-letters", "list"]), 50, COLUMNS, Command::stdout);
    for id in [letter, &format!("{job}_fetch-all-records")] {
        assert!(shown.contains(id), "{id} is whole: {shown}");
    }
}

/// No two settings look the same, and all that is said of them can be read.
#[test]
fn settings_and_findings_are_whole() {
    let sandbox = Sandbox::new();
    let settings = sandbox.run(&["config", "--json"]).ok().json();
    let shown = screen(&sandbox, &["config"]);
    fits(&shown, "config");
    assert!(!shown.contains('…'), "{shown}");
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let all = words(&shown).join(" ");
    for (name, setting) in
        settings.as_object().unwrap().iter().filter(|(_, one)| one.get("aliasOf").is_none())
    {
        assert!(shown.lines().any(|line| line.split(' ').next() == Some(name)), "{name}: {shown}");
        let about = words(setting["about"].as_str().unwrap()).join(" ");
        assert!(all.contains(&about), "{name}: {about} is not in {shown}");
    }
    let shown = screen(&sandbox, &["doctor"]);
    fits(&shown, "doctor");
    assert!(!shown.contains('…'), "{shown}");
    let advice = on_terminal(sandbox.command(&["doctor"]), 50, COLUMNS, Command::stderr).replace('\r', "");
    assert!(advice.contains("claude: only agents need it: npm install"), "{advice}");
    fits(&advice, "advice of the doctor");
}

/// A county is a word of one contract: it has a column only where a label or an event names one.
#[test]
fn triage_tables_have_a_county_only_when_somebody_named_one() {
    for (labels, file) in [("", "plain"), (", labels: {county: EU}", "county")] {
        let sandbox = Sandbox::new();
        let task = format!("{{taskId: load, run: exit 1, retry: 1, onFailure: park{labels}}}");
        sandbox.write("job.yaml", &format!("name: orders\ntasks:\n- {task}\n"));
        assert_eq!(sandbox.run(&["run", "job.yaml"]).code, 3);
        let codes = sandbox.run(&["errors", "list", "--json"]).ok().json();
        let code = codes["items"][0]["code"].as_str().unwrap();
        let parked = sandbox.run(&["parked", "list", "--json"]).ok().json();
        let execution = parked["items"][0]["executionId"].as_str().unwrap();
        // What a list shows can be pasted into the next command.
        for list in [&["parked", "list"][..], &["errors", "top"], &["errors", "show", code]] {
            let mut command = sandbox.command(list);
            command.env("NO_COLOR", "1");
            let shown = on_terminal(command, 50, COLUMNS, Command::stdout);
            let id = if list[1] == "top" { code } else { execution };
            assert!(shown.lines().any(|line| line.split(' ').any(|word| word == id)), "{list:?}: {shown}");
        }
        for (name, arguments) in [
            ("parked_list", &["parked", "list"][..]),
            ("parked_show", &["parked", "show", execution]),
            ("errors_show", &["errors", "show", code]),
        ] {
            let shown = screen(&sandbox, arguments);
            let has_place = ["parked_list", "errors_show"].contains(&name);
            let words = ["COUNTY", "GROUP"].map(|word| shown.contains(word));
            assert_eq!(words, [has_place && !labels.is_empty(), false], "{name}: {shown}");
            let is_settled =
                |line: &&str| !["first ", "trend ", "parked "].iter().any(|begin| line.starts_with(begin));
            let shown: Vec<_> = shown.lines().filter(is_settled).collect();
            check(&format!("{name}_{file}.txt"), &times_out(&shown.join("\n")));
        }
        // The filter is there in any case.
        let found = |county: &str| {
            let list = sandbox.run(&["parked", "list", "--county", county, "--json"]).ok().json();
            list["items"].as_array().unwrap().len()
        };
        assert_eq!((found("EU"), found("US")), (usize::from(!labels.is_empty()), 0));
    }
}

/// How long ago and how long it took, which differ.
fn times_out(text: &str) -> String {
    let words = text.split_inclusive([' ', '\n']);
    let time = |word: &str| {
        let word = word.trim();
        let unit = word.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        unit.len() < word.len() && ["ms", "s", "m"].contains(&unit)
    };
    let mut shown = String::new();
    for word in words {
        if time(word) {
            shown.push_str("TIME");
            shown.push_str(&word[word.trim_end().len()..]);
        } else {
            shown.push_str(word);
        }
    }
    shown.replace("TIME ago", "now").lines().map(squeezed).collect::<Vec<_>>().join("\n") + "\n"
}

/// Columns of times are as wide as their longest.
fn squeezed(line: &str) -> String {
    let mut squeezed = String::new();
    for word in line.split(' ').filter(|word| !word.is_empty()) {
        if !squeezed.is_empty() {
            squeezed.push(' ');
        }
        squeezed.push_str(word);
    }
    squeezed
}

#[test]
fn errors_go_on_below_themselves_and_have_colours_only_where_they_are_wanted() {
    let sandbox = Sandbox::new();
    let error = |colour: bool| {
        let mut command = sandbox.command(&["jobs", "list", "--status", "faild"]);
        if !colour {
            command.env("NO_COLOR", "1");
        }
        crate::terminal::on_terminal_ending(command, 50, COLUMNS, Command::stderr, 2).replace("\r\n", "\n")
    };
    check("error.txt", &error(false));
    fits(&error(false), "error");
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", "tasks:\n- {taskId: a, run: 'true'}\n");
    sandbox.run(&["run", "job.yaml"]).ok();
    let list = |colour: &str| {
        let mut command = sandbox.command(&["jobs", "list"]);
        command.env("NO_COLOR", colour);
        on_terminal(command, 50, COLUMNS, Command::stdout)
    };
    assert!(list("").contains("\u{1b}[32mcompleted\u{1b}[0m"), "{:?}", list(""));
    assert!(!list("1").contains('\u{1b}'));
    assert!(!sandbox.run(&["jobs", "list"]).ok().out.contains('\u{1b}'), "no terminal");
}
