//! The examples of README.md, CONTRIBUTING.md and `docs/` work as they stand there.
//!
//! A page is one shell script in a directory of its own, in the order of the page, with the binary first on `PATH`, the
//! repository's `examples` beside it and a server that runs there, unless the page starts one itself. Each block is handled by its
//! language:
//!
//! | language | |
//! | --- | --- |
//! | `console` | what stands behind `$` is run and must end with 0; other lines are what it printed somewhere |
//! | `sh` | the whole block is run |
//! | `yaml` | a job, tasks of one, a definition, scripts, settings or codes, told apart by its keys, is given to the binary |
//! | `js` | it is saved as a script, which compiles it |
//! | `json` | it is read |
//! | `python` | it is compiled |
//! | `rust` | it is the text of a function in this file, which is compiled and run |
//!
//! Comments right above a block, which readers do not see, say more. `not run: REASON` is the only way around: without it a block
//! of another language fails the test.
//!
//! - `<!-- file: NAME -->` keeps the block as a file, for what follows on the page,
//! - `<!-- before: COMMAND -->`, `<!-- after: COMMAND -->` are run around it,
//! - `<!-- fails -->`: its last command shows an error, and ends with another code than 0,
//! - `<!-- no server -->`: the page works on the data directory itself, and no server is started for it.
//!
//! The commands run as the user who runs the tests, so a page with a program that is not on a short list is not run
//! at all: an example that makes users or installs services must say `not run`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tidemill::{Handlers, Host, HostOptions, Json, TaskContext, TaskError, task};

use crate::parts;
use crate::sandbox::Sandbox;

/// Where the server of the examples listens.
const ADDRESS: &str = "http://127.0.0.1:7070";
/// How the README calls the program before it is built.
const BUILT: &str = "cargo run -p tidemill -- ";
/// What examples may start. None of these changes anything outside of the page's directory as examples use it.
const PROGRAMS: [&str; 11] =
    ["tidemill", "curl", "python3", "echo", "cat", "cp", "mkdir", "test", "export", "kill", "wait"];

struct Block {
    line: usize,
    language: String,
    marks: Vec<(String, String)>,
    text: String,
}

impl Block {
    fn mark<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.marks.iter().filter(move |(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn is_run(&self) -> bool {
        self.mark("not run").next().is_none()
    }

    /// The keys at the left edge of YAML.
    fn keys(&self) -> Vec<&str> {
        let lines = self.text.lines().filter(|line| !line.starts_with([' ', '#', '-']));
        lines.filter_map(|line| line.split_once(':')).map(|(key, _)| key).collect()
    }

    fn is_definition(&self) -> bool {
        let keys = self.keys();
        keys.contains(&"command") || keys.contains(&"runner")
    }

    /// Its commands, each with its line.
    fn commands(&self) -> Vec<(usize, String)> {
        if self.language == "sh" {
            return vec![(self.line + 1, self.text.clone())];
        }
        let mut commands: Vec<(usize, String)> = Vec::new();
        let mut goes_on = false;
        for (line, text) in self.text.lines().enumerate() {
            if let Some(command) = text.strip_prefix("$ ") {
                commands.push((self.line + 1 + line, command.to_owned()));
            } else if goes_on {
                let command = &mut commands.last_mut().unwrap().1;
                command.push('\n');
                command.push_str(text);
            } else {
                continue;
            }
            goes_on = text.ends_with('\\');
        }
        commands
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// All pages, those in folders too.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md"), root().join("CONTRIBUTING.md")];
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// The mark that a line is, if it is one.
fn mark(line: &str) -> Option<(String, String)> {
    let inner = line.trim().strip_prefix("<!-- ")?.strip_suffix(" -->")?;
    let (key, value) = inner.split_once(": ").unwrap_or((inner, ""));
    Some((key.to_owned(), value.to_owned()))
}

fn blocks(page: &str) -> Vec<Block> {
    let lines: Vec<_> = page.lines().collect();
    let mut blocks = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let indent = lines[at].len() - lines[at].trim_start().len();
        if let Some(language) = lines[at].trim().strip_prefix("```") {
            let length =
                lines[at + 1..].iter().position(|line| line.trim() == "```").expect("the block ends");
            let text: String = lines[at + 1..][..length]
                .iter()
                .map(|line| [line.get(indent..).unwrap_or_default(), "\n"].concat())
                .collect();
            let mut marks: Vec<_> = lines[..at].iter().rev().map_while(|line| mark(line)).collect();
            marks.reverse();
            blocks.push(Block { line: at + 1, language: language.to_owned(), marks, text });
            at += length + 1;
        }
        at += 1;
    }
    blocks
}

/// What runs the examples of one page.
struct Script {
    page: String,
    text: String,
    problems: Vec<String>,
    /// Whether it has a program that is not on the list.
    is_refused: bool,
}

impl Script {
    fn problem(&mut self, line: usize, what: &str) {
        self.problems.push(format!("{}:{line}: {what}", self.page));
    }

    /// A command that must end with 0, or must not.
    fn command(&mut self, line: usize, command: &str, fails: bool) {
        let command = command.replace(BUILT, "tidemill ");
        for program in programs(&command) {
            if !PROGRAMS.contains(&program.as_str()) {
                self.is_refused = true;
                self.problem(
                    line,
                    &format!("`{program}` is not run by a test: mark the block, or list the program"),
                );
            }
        }
        let page = &self.page;
        let wrong = if fails { "code=0" } else { "code=[1-9]*" };
        let _ = write!(
            self.text,
            "{{ {command}\n}}\ncase \"code=$?\" in {wrong}) echo '@@ {page}:{line}: ended with '$?' in what follows' ;; esac\n"
        );
        if command.contains("tidemill serve") && command.trim_end().ends_with('&') {
            let data = command.split_once("--data ").and_then(|(_, rest)| rest.split_whitespace().next());
            let data = data.unwrap_or(".tidemill");
            let _ = writeln!(
                self.text,
                "until [ -s {data}/server.json ]; do sleep 0.05; done\n\
                 address=$(sed 's/.*\"url\":\"\\([^\"]*\\)\".*/\\1/' {data}/server.json)"
            );
        }
    }

    fn block(&mut self, sandbox: &Sandbox, block: &Block, number: usize) {
        let line = block.line;
        for (key, value) in &block.marks {
            let is_known = match key.as_str() {
                "not run" => value.len() > 5,
                "file" | "before" | "after" => !value.is_empty(),
                "fails" | "no server" => value.is_empty(),
                _ => false,
            };
            if !is_known {
                self.problem(line, &format!("`{key}: {value}` says nothing that this test knows"));
            }
        }
        if !block.is_run() {
            return;
        }
        let named = block.mark("file").next();
        let file = named.map_or_else(|| format!("block-{number}.{}", block.language), str::to_owned);
        let (keys, fails) = (block.keys(), block.mark("fails").next().is_some());
        sandbox.write(&format!("of-{file}"), &block.text);
        self.command(line, &format!("cp of-{file} {file}"), false);
        for command in block.mark("before") {
            self.command(line, command, false);
        }
        match block.language.as_str() {
            "console" | "sh" => {
                let commands = block.commands();
                let last = commands.len();
                for (at, (line, command)) in commands.into_iter().enumerate() {
                    self.command(line, &command, fails && at + 1 == last);
                }
            }
            "yaml" if block.text.starts_with("- taskId") => {
                let tasks: String = block.text.lines().map(|line| ["  ", line, "\n"].concat()).collect();
                sandbox.write(&format!("tasks-{file}"), &format!("tasks:\n{tasks}"));
                self.command(line, &format!("tidemill submit tasks-{file} --data checked"), false);
            }
            "yaml" if keys.contains(&"tasks") => {
                self.command(line, &format!("tidemill submit {file} --data checked"), fails);
            }
            "yaml" if block.is_definition() => {} // It was stored before all others.
            "yaml" if keys.contains(&"scripts") => {
                self.command(line, "tidemill scripts apply . --data checked", fails);
            }
            "yaml" if keys.contains(&"families") => {
                let command = format!("WORKFLOW_FAMILIES={file} tidemill errors top --data checked");
                self.command(line, &command, fails);
            }
            "yaml" if keys.contains(&"codes") => {
                let command = format!("WORKFLOW_CATALOGUE={file} tidemill errors catalogue --data checked");
                self.command(line, &command, fails);
            }
            "yaml" if keys.iter().all(|key| *key == key.to_uppercase()) => {
                self.command(line, &format!("tidemill config --config {file}"), fails);
            }
            "js" => {
                let grants = "--grant publish --grant submitJob";
                self.command(
                    line,
                    &format!("tidemill scripts put block-{number} {file} {grants} --data checked"),
                    fails,
                );
            }
            "json" => {
                let mut values =
                    serde_json::Deserializer::from_str(&block.text).into_iter::<serde_json::Value>();
                if let Some(error) = values.find_map(Result::err) {
                    self.problem(line, &error.to_string());
                }
            }
            "python" => self.command(line, &format!("python3 -m py_compile {file}"), fails),
            "rust" if bare(include_str!("doc_examples.rs")).contains(&bare(&block.text)) => {}
            _ => self.problem(line, "nothing runs this block, and no `not run: REASON` says why"),
        }
        for command in block.mark("after") {
            self.command(line, command, false);
        }
    }
}

/// The programs that a command starts, wherever they stand in it.
fn programs(command: &str) -> Vec<String> {
    let (mut parts, mut quote, mut outer) = (String::new(), None, Vec::new());
    let mut letters = command.chars().peekable();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (None | Some('"'), '$') if letters.next_if_eq(&'(').is_some() => {
                outer.push(quote.take());
                parts.push('\n');
            }
            (None, ')') => {
                quote = outer.pop().flatten();
                parts.push('_');
            }
            (None, '\\') if letters.next_if_eq(&'\n').is_some() => parts.push(' '),
            (None, '\'' | '"') => quote = Some(letter),
            (None, '#') if parts.ends_with([' ', '\n']) || parts.is_empty() => {
                while letters.next_if(|letter| *letter != '\n').is_some() {}
            }
            (None, '&') if parts.ends_with('>') => parts.push(letter),
            (None, ';' | '|' | '&' | '(' | '{' | '}') => parts.push('\n'),
            (None, _) => parts.push(letter),
            (Some(open), _) if letter == open => {
                quote = None;
                parts.push('_');
            }
            (Some(_), _) => {}
        }
    }
    let first = |part: &str| part.split_whitespace().find(|word| !word.contains('=')).map(str::to_owned);
    parts.lines().filter_map(first).filter(|word| !word.starts_with('_')).collect()
}

#[test]
fn programs_are_found_wherever_they_stand() {
    for (command, expected) in [
        ("tidemill run job.yaml", &["tidemill"][..]),
        ("job=$(tidemill submit x) # useradd", &["tidemill"]),
        ("A=b curl -d '{\"rm\": \"a; rm\"}' \\\n  \"$(cat file)\" 2>&1 | head", &["curl", "cat", "head"]),
        ("echo a && rm -r x & kill %1", &["echo", "rm", "kill"]),
        ("# all of it\n\nuseradd tidemill\n{ install x; }", &["useradd", "install"]),
    ] {
        assert_eq!(programs(command), expected, "{command}");
    }
}

/// Code as the compiler sees it.
fn bare(code: &str) -> String {
    let code: String = code.split_whitespace().collect();
    code.replace(",]", "]").replace(",)", ")")
}

/// Runs the examples of a page, and tells what does not work.
fn try_page(page: &Path) -> Vec<String> {
    let name = page.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
    let blocks = blocks(&std::fs::read_to_string(page).unwrap());
    if blocks.is_empty() {
        return Vec::new();
    }
    let sandbox = Sandbox::new();
    std::os::unix::fs::symlink(root().join("examples"), sandbox.dir.join("examples")).unwrap();
    // A refused request is a failed command.
    sandbox.write(".curlrc", "fail-with-body\nno-progress-meter\n");
    let mut script =
        Script { page: name, text: "exec 2>&1\n".to_owned(), problems: Vec::new(), is_refused: false };
    if blocks.iter().any(|block| block.language == "yaml") {
        sandbox.write("first.json", r#"{"tasks": [{"taskId": "first", "run": "true"}]}"#);
        script.command(1, "tidemill submit first.json --data checked", false);
    }
    for (number, block) in blocks.iter().enumerate() {
        if block.language == "yaml" && block.is_run() && block.is_definition() {
            sandbox.write(&format!("definition-{number}.yaml"), &block.text);
            let command = format!("tidemill definitions create definition-{number}.yaml --data checked");
            script.command(block.line, &command, false);
        }
    }
    for (number, block) in blocks.iter().enumerate() {
        script.block(&sandbox, block, number);
    }
    if script.is_refused {
        return script.problems;
    }
    script.text.push_str("kill $(jobs -p) 2>/dev/null; wait\n");
    // What pages say is set.
    let environment =
        [("TASK_SECRETS", "DB_URL"), ("DB_URL", "postgres://etl"), ("WORKFLOW_SOURCES", "shop.orders")];
    let speaks = script.text.contains("tidemill") || script.text.contains("curl");
    let starts = blocks.iter().any(|block| block.is_run() && block.text.contains("tidemill serve"));
    let refuses = blocks.iter().any(|block| block.mark("no server").next().is_some());
    let server = (speaks && !starts && !refuses).then(|| sandbox.serve(&[], &environment));
    // The address of a server that the page starts is known when it runs.
    let text = script.text.replace(ADDRESS, server.as_ref().map_or("$address", |server| &server.url));
    sandbox.write("page.sh", &text);
    let mut bash = Command::new("timeout");
    bash.args(["-k", "5", "60", "bash", "page.sh"]);
    let mut bash = sandbox.in_its_place(bash);
    let binary = Path::new(env!("CARGO_BIN_EXE_tidemill")).parent().unwrap();
    let path = std::env::vars().find(|(name, _)| name == "PATH").unwrap().1;
    bash.env("PATH", format!("{}:{path}", binary.display())).env("TIDEMILL_LISTEN", "127.0.0.1:0");
    let output = bash.envs(environment).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() && output.status.code() != Some(143) {
        script.problem(1, &format!("the page ended with {}", output.status));
    }
    if said.contains("@@ ") || !script.problems.is_empty() {
        script.problems.push(said.into_owned());
    }
    script.problems
}

#[test]
fn every_example_is_run_or_says_why_not() {
    if !parts::has_curl() || !parts::has_python() {
        return;
    }
    let mut problems = Vec::new();
    let only = std::env::vars().find(|(name, _)| name == "DOC_EXAMPLES_PAGE").map(|(_, page)| page);
    for page in pages() {
        if only.as_ref().is_none_or(|only| page.ends_with(only)) {
            problems.extend(try_page(&page));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

async fn fetch(task: TaskContext) -> Result<Json, TaskError> {
    if task.attempt == 1 && task.task.as_str() == "page-2" {
        return Err(TaskError::retryable("connection reset"));
    }
    Ok(Json::of(&"time and tide"))
}

async fn count(task: TaskContext) -> Result<Json, TaskError> {
    Ok(Json::of(&task.dependency_outputs.len()))
}

/// The library as the README and the tutorial show it.
#[tokio::test]
async fn the_tutorial_runs_a_job_in_a_program() {
    let sandbox = Sandbox::new();
    let dir = sandbox.dir.to_str().unwrap();
    let run = async || -> Result<(), Box<dyn std::error::Error>> {
        let handlers = Handlers::new().on("fetch", fetch)?.on("count", count)?;
        let host = Host::open(dir.as_ref(), handlers, HostOptions::default()).await?;
        let tasks = vec![task("page-1", "fetch", &[])?, task("words", "count", &["page-1"])?];
        let job = host.submit("pages", tasks).await?;
        println!("{}", host.wait(job).await?.as_str());
        host.shut_down().await;
        Ok(())
    };
    run().await.unwrap();
}
