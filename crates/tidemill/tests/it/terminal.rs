//! Commands on a terminal.

use std::fs::File;
use std::io::Read as _;
use std::process::{Command, Stdio};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::sandbox::Sandbox;

/// What a run writes to a terminal of this size.
fn shown(sandbox: &Sandbox, rows: u16, columns: u16) -> String {
    let mut command = sandbox.command(&["run", "job.yaml"]);
    command.env("NO_COLOR", "1").stdout(Stdio::null());
    on_terminal(command, rows, columns, Command::stderr)
}

/// What a command writes to a terminal of this size, as one of its outputs.
pub(crate) fn on_terminal(
    command: Command,
    rows: u16,
    columns: u16,
    end: fn(&mut Command, File) -> &mut Command,
) -> String {
    on_terminal_ending(command, rows, columns, end, 0)
}

/// The same of a command that ends with this code.
pub(crate) fn on_terminal_ending(
    mut command: Command,
    rows: u16,
    columns: u16,
    end: fn(&mut Command, File) -> &mut Command,
    code: i32,
) -> String {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    tcsetwinsize(&master, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap();
    let slave = File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap();
    end(&mut command, slave);
    let mut child = command.spawn().unwrap();
    // Our own end must not keep the terminal open.
    drop(command);
    let mut text = Vec::new();
    let mut buffer = [0; 4_096];
    let mut master = File::from(master);
    // A terminal whose last writer has gone answers with an error.
    while let Ok(count @ 1..) = master.read(&mut buffer) {
        text.extend_from_slice(&buffer[..count]);
    }
    assert_eq!(child.wait().unwrap().code(), Some(code));
    String::from_utf8(text).unwrap()
}

/// The screen after all that was written: lines, moved over by the few sequences that are used.
fn screen(text: &str) -> Vec<String> {
    let mut lines: Vec<Vec<char>> = vec![Vec::new()];
    let (mut row, mut column) = (0, 0);
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' => {
                assert_eq!(characters.next(), Some('['));
                let mut number = String::new();
                let kind = loop {
                    match characters.next().unwrap() {
                        digit @ ('0'..='9' | '?') => number.push(digit),
                        kind => break kind,
                    }
                };
                match kind {
                    'A' => row -= number.parse::<usize>().unwrap(),
                    'K' => lines[row].truncate(column),
                    'J' => {
                        lines[row].truncate(column);
                        lines.truncate(row + 1);
                    }
                    'l' | 'h' => assert_eq!(number, "?25"),
                    other => panic!("{other}"),
                }
            }
            '\r' => column = 0,
            '\n' => {
                row += 1;
                if lines.len() == row {
                    lines.push(Vec::new());
                }
            }
            character => {
                let line = &mut lines[row];
                line.resize(line.len().max(column + 1), ' ');
                line[column] = character;
                column += 1;
            }
        }
    }
    lines.into_iter().map(|line| line.into_iter().collect()).collect()
}

#[test]
fn a_tree_is_drawn_over_itself_and_fits() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", "name: tree\ntasks:\n- {taskId: a, run: 'echo one; sleep 0.3; echo two'}\n- {taskId: b, run: 'echo three', dependsOn: [a]}\n");
    let text = shown(&sandbox, 24, 60);
    assert!(
        text.contains("\u{1b}[?25l") && text.rfind("\u{1b}[?25h") > text.rfind("\u{1b}[?25l"),
        "the cursor comes back"
    );
    let screen = screen(&text);
    assert!(screen[0].starts_with("tree · 2 of 2 done · "), "{screen:#?}");
    assert!(screen[1].starts_with("✔ a    completed ") && screen[1].ends_with("two"), "{screen:#?}");
    assert!(screen[2].starts_with("✔   b  completed ") && screen[2].ends_with("three"), "{screen:#?}");
    assert!(screen[3].starts_with("completed: 2 tasks in "), "{screen:#?}");
}

#[test]
fn a_job_larger_than_the_screen_is_shown_in_part() {
    let sandbox = Sandbox::new();
    let task = |n| format!("- {{taskId: task-number-{n}, run: echo some words of task {n}}}\n");
    let job = format!("name: large\ntasks:\n{}", (0..30).map(task).collect::<String>());
    sandbox.write("job.yaml", &job);
    let text = shown(&sandbox, 12, 40);
    let screen = screen(&text);
    assert!(screen.len() < 13, "{screen:#?}");
    assert!(screen.iter().all(|line| line.chars().count() < 40), "{screen:#?}");
    assert!(screen.iter().any(|line| line.contains("… and 22 completed")), "{screen:#?}");
}

#[test]
fn what_a_task_wrote_does_not_command_the_terminal() {
    let sandbox = Sandbox::new();
    let run = r"printf '\033]0;title\007\033[2Jgone\n'; printf '\033[2Jfailed\n' >&2; exit 1";
    sandbox.write(
        "job.yaml",
        &format!(
            "name: loud\ntasks:\n- {{taskId: a, run: '{}', retry: {{maxAttempts: 1}}}}\n",
            run.replace('\'', "''")
        ),
    );
    let report = sandbox.run(&["run", "job.yaml", "--json"]).json();
    let task = format!("{}_a", report["jobId"].as_str().unwrap());
    for command in ["logs", "get"] {
        let screen = |arguments: &[&str]| on_terminal(sandbox.command(arguments), 50, 200, Command::stdout);
        let text = screen(&["tasks", command, &task]);
        assert!(!text.contains('\u{1b}') && !text.contains('\u{7}'), "{command}: {text:?}");
        assert!(command != "logs" || text.contains("^[]0;title^G^[[2Jgone"), "{text:?}");
    }
    let piped = sandbox.run(&["tasks", "logs", &task]).ok().out;
    assert!(piped.contains("\u{1b}[2Jgone"), "as it is where no terminal is: {piped:?}");
}

/// Marks that turn the direction of text: what stands there is what is read. And files of such names can be fetched.
#[test]
fn what_a_task_wrote_does_not_turn_the_text_of_the_terminal() {
    const MARKS: [char; 12] = [
        '\u{61c}', '\u{200e}', '\u{200f}', '\u{202a}', '\u{202b}', '\u{202c}', '\u{202d}', '\u{202e}',
        '\u{2066}', '\u{2067}', '\u{2068}', '\u{2069}',
    ];
    let marks: String = MARKS.iter().collect();
    let sandbox = Sandbox::new();
    let name = format!("a{marks}\nb");
    let run = format!(
        "echo 'log {marks}.'; echo kept > \"$TIDEMILL_OUTPUT_DIR/artifacts/$(printf 'a{marks}\\nb')\"; echo 'words {marks}.' >&2; exit 1"
    );
    let job = serde_json::json!({
        "name": format!("named {marks}."),
        "tasks": [{ "taskId": "a", "run": run, "retry": { "maxAttempts": 1 } }],
    });
    sandbox.write("job.json", &job.to_string());
    let report = sandbox.run(&["run", "job.json", "--json"]).json();
    let task = format!("{}_a", report["jobId"].as_str().unwrap());
    let job = report["jobId"].as_str().unwrap();
    for arguments in [
        &["tasks", "logs", &task][..],
        &["tasks", "get", &task],
        &["tasks", "get", &task, "--json"],
        &["tasks", "history", &task, "--json"],
        &["tasks", "files", &task],
        &["tasks", "files", &task, "--json"],
        &["jobs", "get", job],
        &["jobs", "list"],
        &["jobs", "list", "--json"],
    ] {
        let text = on_terminal(sandbox.command(arguments), 50, 400, Command::stdout);
        assert!(!text.contains(MARKS), "{arguments:?}: {text:?}");
    }
    let files = sandbox.run(&["tasks", "files", &task, "--json"]).ok().json();
    let path = files["items"][0]["path"].as_str().unwrap();
    assert_eq!(path, format!("r1-a1/artifacts/{name}"));
    assert_eq!(sandbox.run(&["tasks", "files", &task, path]).ok().out, "kept\n");
    let listed = sandbox.run(&["tasks", "files", &task]).ok().out;
    assert!(listed.contains(r"r1-a1/artifacts/a\u{61c}\u{200e}"), "{listed}");
    let log = sandbox.run(&["tasks", "logs", &task]).ok().out;
    assert!(log.contains(&marks), "as it is where no terminal is: {log:?}");
}
