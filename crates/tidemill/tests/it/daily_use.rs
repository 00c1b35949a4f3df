//! The command line as people and programs use it every day: errors, ids, flags, pipes.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::sandbox::{Ran, Sandbox};

const TWO: &str = "name: two\ntasks:\n- {taskId: a, run: 'echo one; echo two'}\n- {taskId: b, run: 'echo three', dependsOn: a}\n";

fn ran(mut command: Command) -> Ran {
    let output = command.stderr(Stdio::piped()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code().unwrap_or(-1), out: text(output.stdout), words: text(output.stderr) }
}

#[test]
fn with_json_every_error_is_one_problem_document_on_standard_error() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "bad.yaml",
        "tasks:\n- {taskId: a, run: x, depends_on: [b]}\n- {taskId: b, run: x, retry: -1}\n",
    );
    sandbox.write("good.yaml", TWO);
    sandbox.run(&["run", "good.yaml"]).ok();
    let absent = "job-00000000000000000000000000000001";
    for (arguments, exit, status, code) in [
        (&["job", "list", "--json"][..], 2, 400, "USAGE"),
        (&["jobs", "list", "--json", "--statsu", "failed"], 2, 400, "USAGE"),
        (&["submit", "bad.yaml", "--json"], 2, 400, "INVALID_FILE"),
        (&["submit", "nowhere.yaml", "--json"], 2, 400, "UNUSABLE"),
        (&["--json", "jobs", "get", absent], 1, 404, "NOT_FOUND"),
        (&["jobs", "list", "--json", "--server", "http://127.0.0.1:1"], 1, 503, "UNREACHABLE"),
        (&["jobs", "list", "--json", "--server", "ftp://x"], 2, 400, "INVALID_FILE"),
        (&["jobs", "retry", "--json"], 2, 400, "UNUSABLE"),
    ] {
        let ran = sandbox.run(arguments);
        assert_eq!(
            (ran.code, ran.out.as_str(), ran.words.lines().count()),
            (exit, "", 1),
            "{arguments:?}: {ran:#?}"
        );
        let mut problem: Value = serde_json::from_str(&ran.words).unwrap();
        // Only what a route answered has an id.
        let instance = problem.as_object_mut().unwrap().remove("instance");
        assert_eq!(instance.is_some(), code == "NOT_FOUND", "{arguments:?}");
        let keys: Vec<_> = problem.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(keys, ["code", "detail", "details", "status", "title", "type"], "{arguments:?}");
        assert_eq!((&problem["status"], &problem["code"]), (&json!(status), &json!(code)), "{arguments:?}");
        assert_eq!(problem["type"], format!("urn:tidemill:problem:{code}"));
    }
    let problem: Value = serde_json::from_str(&sandbox.run(&["submit", "bad.yaml", "--json"]).words).unwrap();
    let detail =
        |at: usize| (problem["details"][at]["field"].clone(), problem["details"][at]["line"].clone());
    assert_eq!(detail(0), (json!("tasks[0].depends_on"), json!(2)), "{problem}");
    assert_eq!(detail(1), (json!("tasks[1].retry"), json!(3)), "{problem}");
}

#[test]
fn an_error_is_one_line_and_says_what_may_have_been_meant() {
    let sandbox = Sandbox::new();
    sandbox.write("tidemill.yaml", "TENANTID: acme\n");
    sandbox.write("job.yaml", "tasks:\n- {taskId: a, run: x, depends_on: [b]}\n");
    sandbox.write("other.yaml", "TENANT_ID: acme\n");
    for (arguments, expected) in [
        (
            &["jbos", "list"][..],
            "tidemill: unrecognized subcommand 'jbos'; did you mean jobs? see `tidemill --help`\n",
        ),
        (
            &["jobs", "lsit"],
            "tidemill: unrecognized subcommand 'lsit'; did you mean list? see `tidemill jobs --help`\n",
        ),
        (
            &["jobs", "list", "--statsu", "failed"],
            "tidemill: unexpected argument '--statsu' found; did you mean --status? see `tidemill jobs list --help`\n",
        ),
        (
            &["jobs", "list", "--status", "faild"],
            "tidemill: invalid value 'faild' for '--status <STATUS>' [possible values: running, failing, failed, completed, \
             cancelled]; did you mean failed? see `tidemill jobs list --help`\n",
        ),
        (
            &["jobs", "get"],
            "tidemill: the following required arguments were not provided: <JOB>; see `tidemill jobs get --help`\n",
        ),
        (
            &["config"],
            "tidemill: tidemill.yaml:1:1: TENANTID: there is no setting of this name; did you mean TENANT_ID?\n",
        ),
        (
            &["submit", "--config", "other.yaml", "job.yaml"],
            "job.yaml:2:35: tasks[0].depends_on: unknown field; did you mean dependsOn?\n",
        ),
    ] {
        let ran = sandbox.run(arguments);
        assert_eq!((ran.code, ran.words.as_str()), (2, expected), "{arguments:?}");
    }
}

#[test]
fn flags_may_stand_before_the_command() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", TWO);
    let id = sandbox.run(&["--data", "elsewhere", "submit", "job.yaml"]).ok().out;
    let server = sandbox.serve(&["--data", "elsewhere"], &[]);
    for arguments in [
        &["--server", &server.url, "jobs", "list"][..],
        &["jobs", "--server", &server.url, "list"],
        &["jobs", "list", "--server", &server.url],
        &["--data=elsewhere", "jobs", "list"],
    ] {
        assert!(sandbox.run(arguments).ok().out.contains(id.trim()), "{arguments:?}");
    }
    assert_eq!(
        sandbox.run(&["--json", "--server", &server.url, "jobs", "list"]).ok().json()["items"][0]["jobId"],
        id.trim()
    );
    assert_eq!(sandbox.run(&["--server", &server.url]).code, 2, "no command");
    server.stop().ok();
}

#[test]
fn a_closed_pipe_is_quiet() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", TWO);
    sandbox.run(&["run", "job.yaml"]).ok();
    for arguments in [
        &["jobs", "list"][..],
        &["jobs", "list", "--json"],
        &["--help"],
        &["completions", "bash"],
        &["schema", "job"],
        &["config"],
        &["usage"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = sandbox.command(arguments);
        command.stdout(writer);
        let ran = ran(command);
        assert_eq!((ran.code, ran.words.as_str()), (141, ""), "{arguments:?}");
    }
}

#[test]
fn a_job_is_not_watched_where_nobody_runs_it() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", TWO);
    // A job in a store that only this call knows of would never run.
    for more in [&[][..], &["--watch"], &["--json"]] {
        let ran = sandbox.run(&[&["submit", "job.yaml"], more].concat());
        assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran:#?}");
        for way in ["start `tidemill serve`", "--server", "--data"] {
            assert!(ran.words.contains(way), "{way}: {ran:#?}");
        }
        assert!(!sandbox.dir.join(".tidemill").exists(), "nothing was made");
    }
    let ran = sandbox.run(&["submit", "job.yaml", "--watch", "--data", ".tidemill"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran:#?}");
    assert!(
        ran.words.contains("--watch needs a server") && ran.words.contains("nothing was submitted"),
        "{ran:#?}"
    );
    assert_eq!(sandbox.run(&["jobs", "list", "--json"]).ok().json()["items"], json!([]));
    let named = sandbox.run_with(&["submit", "job.yaml"], &[("TIDEMILL_DATA", "elsewhere")]).ok();
    assert!(named.words.contains("it runs when `tidemill serve` is started on elsewhere"), "{named:#?}");
    let server = sandbox.serve(&[], &[]);
    assert_eq!(sandbox.run(&["submit", "job.yaml", "--watch", "--json"]).ok().json()["status"], "completed");
    server.stop().ok();
}

#[test]
fn many_are_changed_only_if_somebody_says_which() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", "tasks:\n- {taskId: a, run: 'exit 1', retry: 1}\n");
    for _ in 0..2 {
        assert_eq!(sandbox.run(&["run", "job.yaml"]).code, 1);
    }
    let none = sandbox.run(&["jobs", "retry"]);
    assert_eq!(none.code, 2);
    assert!(none.words.contains("--status or --name, or --all"), "{none:#?}");
    assert_eq!(sandbox.run(&["jobs", "retry", "--all", "--status", "failed"]).code, 2);
    let first = sandbox.run(&["jobs", "retry", "--all", "--limit", "1"]).ok();
    assert_eq!(first.words, "1 job run again; others fit too: run the command again for them\n");
    assert_eq!(sandbox.run(&["jobs", "retry", "--all"]).ok().words, "1 job run again\n");
    let letters = sandbox.run(&["dead-letters", "discard", "--all", "--json"]).ok().json();
    assert!(letters["ids"].is_array(), "{letters}");
}

#[test]
fn parts_of_ids_name_jobs_and_tasks() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", TWO);
    let report = |sandbox: &Sandbox| sandbox.run(&["run", "job.yaml", "--json"]).ok().json();
    let (first, second) = (report(&sandbox), report(&sandbox));
    let (first, second) = (first["jobId"].as_str().unwrap(), second["jobId"].as_str().unwrap());
    let short = format!("job-{}…{}", &first[4..8], &first[30..]);
    for given in [first, &first[..30], &first[4..30], &short] {
        assert_eq!(sandbox.run(&["jobs", "get", given, "--json"]).ok().json()["jobId"], first, "{given}");
        let task = sandbox.run(&["tasks", "get", &format!("{given}/b"), "--json"]).ok().json();
        assert_eq!(task["requestId"], format!("{first}_b"), "{given}");
    }
    assert!(sandbox.run(&["tasks", "list", "--job", &second[..30]]).ok().out.contains(second));
    assert_eq!(sandbox.run(&["tasks", "logs", &format!("{}_a", &second[..30])]).ok().out, "one\ntwo\n");
    let both = sandbox.run(&["jobs", "get", &first[4..8]]);
    assert_eq!(both.code, 1);
    assert!(
        both.words.contains("fits 2 jobs: ") && both.words.contains(first) && both.words.contains(second),
        "{both:#?}"
    );
    for arguments in [&["jobs", "get", "0f"][..], &["jobs", "cancel", "nightly"], &["tasks", "get", "0f0f"]] {
        let none = sandbox.run(arguments);
        assert_eq!(none.code, 1, "{arguments:?}");
        assert!(none.words.contains("(NOT_FOUND)"), "{none:#?}");
    }
}

/// Ids of others are not there, however much of them is known.
#[test]
fn parts_of_ids_do_not_reach_over_the_wall() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", TWO);
    let key = |tenant: &str| {
        let made =
            sandbox.run(&["keys", "create", "--role", "admin", "--tenant", tenant, "--json"]).ok().json();
        made["token"].as_str().unwrap().to_owned()
    };
    let (acme, other) = (key("acme"), key("other"));
    let server = sandbox.serve(&["--no-worker"], &[]);
    let submit = |key: &str| {
        let ran = sandbox.run_with(&["submit", "job.yaml"], &[("TIDEMILL_API_KEY", key)]).ok();
        ran.out.trim().to_owned()
    };
    let (mine, _theirs) = (submit(&acme), submit(&other));
    let part = &mine[4..30];
    let get = |key: &str| sandbox.run_with(&["jobs", "get", part, "--json"], &[("TIDEMILL_API_KEY", key)]);
    assert_eq!(get(&acme).ok().json()["jobId"], mine.as_str());
    let refused = get(&other);
    assert_eq!(refused.code, 1);
    assert!(refused.words.contains("NOT_FOUND") && !refused.words.contains(&mine), "{refused:#?}");
    server.stop().ok();
}

#[test]
fn the_logs_of_a_job_are_those_of_all_its_tasks() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", TWO);
    let report = sandbox.run(&["run", "job.yaml", "--json"]).ok().json();
    let job = report["jobId"].as_str().unwrap();
    assert_eq!(sandbox.run(&["jobs", "logs", &job[..30]]).ok().out, "a | one\na | two\nb | three\n");
    let lines = sandbox.run(&["jobs", "logs", job, "--json"]).ok().out;
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[2], json!({"taskId": "b", "line": "three"}));

    let server = sandbox.serve(&[], &[]);
    sandbox.write(
        "slow.yaml",
        "tasks:\n- {taskId: first, run: 'echo begun; until test -e go; do sleep 0.05; done; echo gone'}\n- {taskId: then, run: 'echo later', dependsOn: first}\n",
    );
    let job = sandbox.run(&["submit", "slow.yaml"]).ok().out.trim().to_owned();
    let mut command = sandbox.command(&["jobs", "logs", &job, "--follow"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert_eq!(lines.next().unwrap().unwrap(), "first | begun");
    sandbox.write("go", "");
    let rest: Vec<_> = lines.map(Result::unwrap).collect();
    assert_eq!(rest, ["first | gone", "then  | later"]);
    assert!(child.wait().unwrap().success());
    server.stop().ok();
}

/// What a command says names the next one.
#[test]
fn a_refusal_or_a_failure_says_how_to_go_on() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve(&[], &[]);
    sandbox.write("bad.yaml", "tasks:\n- {taskId: a, run: exit 1, retry: 1}\n");
    let failed = sandbox.run(&["submit", "bad.yaml", "--watch"]);
    assert_eq!(failed.code, 1, "{failed:#?}");
    let jobs = sandbox.run(&["jobs", "list", "--json"]).ok().json();
    let job = jobs["items"][0]["jobId"].as_str().unwrap();
    let next = format!("go on with: tidemill jobs resume {job}\n");
    assert!(failed.words.ends_with(&next), "{failed:#?}");
    assert!(sandbox.run(&["jobs", "watch", job]).words.ends_with(&next));
    assert!(sandbox.run(&["submit", "--help"]).ok().out.contains("\n  3    the job that was watched waits"));
    let cancelled = sandbox.run(&["jobs", "cancel", job]);
    assert!(!cancelled.words.contains("1 tasks"), "{cancelled:#?}");

    sandbox.write("load.yaml", "name: load\ncommand: 'true'\n");
    sandbox.run(&["definitions", "create", "load.yaml"]).ok();
    let exists = sandbox.run(&["definitions", "create", "load.yaml"]);
    assert!(
        exists.words.contains("(EXISTS); replace it with `tidemill definitions update FILE`"),
        "{exists:#?}"
    );
    let mistyped = sandbox.run(&["rnu", "job.yaml"]);
    assert!(mistyped.words.contains("did you mean run?"), "{mistyped:#?}");
    server.stop().ok();
}

#[test]
fn lists_of_tasks_take_the_states_they_offer_and_show_errors_of_what_failed() {
    let sandbox = Sandbox::new();
    let run = "if [ -e again ]; then exit 0; fi; touch again; echo network trouble >&2; exit 1";
    sandbox.write(
        "job.yaml",
        &format!(
            "tasks:\n- {{taskId: a, run: '{run}', retry: {{maxAttempts: 2, firstDelay: 10ms}}}}\n\
             - {{taskId: b, run: exit 1, retry: 1, dependsOn: a}}\n- {{taskId: c, run: 'true', dependsOn: b}}\n"
        ),
    );
    let report = sandbox.run(&["run", "job.yaml", "--json"]).json();
    assert_eq!(report["tasks"]["a"]["attempt"], 2, "{report:#}");
    let job = report["jobId"].as_str().unwrap();
    let waiting = sandbox.run(&["tasks", "list", "--state", "waiting"]);
    assert_eq!(waiting.code, 2, "{waiting:#?}");
    assert!(waiting.words.contains("--state waiting goes with --job JOB"), "{waiting:#?}");
    let listed = |more: &[&str]| sandbox.run(&[&["tasks", "list"], more].concat()).ok().out;
    assert!(listed(&["--state", "waiting", "--job", job]).contains(&format!("{job}_c")));
    for more in [&[][..], &["--job", job]] {
        let shown = listed(more);
        let of = |task: &str| {
            shown.lines().find(|line| line.contains(&format!("{job}_{task} "))).unwrap().to_owned()
        };
        assert!(of("a").trim_end().ends_with('a'), "no error of what completed: {shown}");
        assert!(!of("b").trim_end().ends_with('b'), "the error of what failed: {shown}");
    }
}
