//! `tidemill run`, as users run it.

use serde_json::json;

use crate::sandbox::{Sandbox, eventually};

/// Times and ids differ from run to run.
fn masked(words: &str) -> String {
    let mut text = String::new();
    for line in words.lines() {
        let line = match line.split_once(' ') {
            Some((clock, rest)) if clock.len() == 12 && clock.as_bytes()[2] == b':' => {
                format!("<time> {rest}")
            }
            _ => line.to_owned(),
        };
        let mut parts = line.split(' ').map(|word| {
            let is_span =
                word.trim_end_matches(',').ends_with('s') && word.starts_with(|c: char| c.is_ascii_digit());
            if word.starts_with("job-") {
                "<job>"
            } else if is_span {
                "<span>"
            } else {
                word
            }
        });
        text.push_str(&parts.by_ref().collect::<Vec<_>>().join(" "));
        text.push('\n');
    }
    text
}

#[test]
fn a_job_runs_to_its_end_and_its_outputs_are_printed() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "job.yaml",
        r#"
name: small
tasks:
  - taskId: first
    run: [sh, -c, "echo hello; echo '{\"n\":20}'"]
  - taskId: second
    run: |
      n=$(sed -n 's/.*"n":\([0-9]*\).*/\1/p' "$INPUT_FILE")
      echo "{\"twice\":$((n * 2))}"
    dependsOn: [first]
"#,
    );
    let ran = sandbox.run(&["run", "job.yaml"]).ok();
    assert_eq!(ran.out, "second: {\"twice\":40}\n");
    let expected = "\
<time> small: <job> with 2 tasks
<time> first started
<time> first | hello
<time> first | {\"n\":20}
<time> first completed in <span>
<time> second started
<time> second | {\"twice\":40}
<time> second completed in <span>
completed: 2 tasks in <span>
";
    assert_eq!(masked(&ran.words), expected, "{}", ran.words);
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(sandbox.dir.join(".tidemill")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o700);
    assert_eq!(sandbox.run(&["verify"]).code, 0);
}

#[test]
fn a_failed_job_ends_with_one_and_tells_the_cause() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "job.yaml",
        "tasks:\n- {taskId: bad, run: 'echo no such thing >&2; exit 3', retry: {maxAttempts: 2, firstDelay: 1ms}}\n\
         - {taskId: after, run: 'true', dependsOn: [bad]}\n- {taskId: beside, run: 'true'}\n",
    );
    let ran = sandbox.run(&["run", "job.yaml"]);
    assert_eq!(ran.code, 1, "{ran:#?}");
    assert!(ran.words.contains("job.yaml: job-"), "a job without a name has that of its file: {ran:#?}");
    assert!(ran.words.contains("failed: 1 of 3 tasks failed, 1 task not started"), "{ran:#?}");
    assert!(ran.words.contains("  bad (attempt 2): exit code 3: no such thing"), "{ran:#?}");
    assert!(ran.words.contains("beside completed"), "{ran:#?}");
    assert!(ran.words.ends_with("go on with: tidemill run job.yaml --resume\n"), "{ran:#?}");
    let report = sandbox.run(&["run", "job.yaml", "--json"]).json();
    assert_eq!(report["tasks"]["bad"]["cause"], "exit code 3: no such thing", "{report}");
    assert_eq!(report["tasks"]["beside"].get("cause"), None);
}

#[test]
fn json_is_one_object_with_states_and_outputs() {
    let sandbox = Sandbox::new();
    let large = "x".repeat(10_000);
    sandbox.write("large.json", &json!({ "text": large }).to_string());
    sandbox.write(
        "job.json",
        &json!({ "name": "shape", "tasks": [
            { "taskId": "large", "run": "cp large.json \"$TIDEMILL_OUTPUT_DIR/artifacts/task-result.json\"" },
            { "taskId": "bad", "run": ["sh", "-c", "exit 1"], "retry": { "maxAttempts": 1 } },
            { "taskId": "never", "run": ["true"], "dependsOn": ["bad"] }
        ] })
        .to_string(),
    );
    let ran = sandbox.run(&["run", "job.json", "--json", "--data", "state"]);
    assert_eq!(ran.code, 1, "{ran:#?}");
    assert_eq!(ran.out.lines().count(), 1, "one object and nothing else");
    let report = ran.json();
    assert_eq!(
        (&report["name"], &report["status"], &report["interrupted"]),
        (&json!("shape"), &json!("failed"), &json!(false))
    );
    assert!(report["jobId"].as_str().unwrap().starts_with("job-"));
    assert!(report["durationMs"].is_u64());
    let tasks = &report["tasks"];
    assert_eq!(tasks["large"]["status"], "completed");
    assert_eq!(
        tasks["large"]["output"]["text"].as_str().unwrap().len(),
        10_000,
        "large outputs are there too"
    );
    assert_eq!((&tasks["bad"]["status"], &tasks["bad"]["attempt"]), (&json!("failed"), &json!(1)));
    assert!(tasks["bad"]["error"].is_string());
    assert_eq!(tasks["never"]["status"], json!(null));
    assert!(sandbox.dir.join("state/log").is_dir());
}

/// What was completed is not run again, and a run without `--resume` is a new job.
#[test]
fn resume_runs_only_what_is_left() {
    let sandbox = Sandbox::new();
    let job = "\
name: again
tasks:
- {taskId: a, run: 'echo a >> ran; echo \"{\\\"n\\\":7}\"'}
- {taskId: b, run: 'echo b >> ran; test -e fixed', dependsOn: [a], retry: {maxAttempts: 1}}
- {taskId: c, run: 'echo c >> ran; cat \"$INPUT_FILE\" > seen', dependsOn: [a, b]}
";
    sandbox.write("job.yaml", job);
    let none = sandbox.run(&["run", "job.yaml", "--resume"]);
    assert_eq!(none.code, 2, "{none:#?}");
    assert!(none.words.contains("there is no unfinished or failed job named \"again\""), "{none:#?}");
    let first = sandbox.run(&["run", "job.yaml", "--json"]);
    assert_eq!(first.code, 1, "{first:#?}");
    sandbox.write("fixed", "");
    let second = sandbox.run(&["run", "job.yaml", "--resume", "--json"]).ok();
    assert_eq!(first.json()["jobId"], second.json()["jobId"]);
    assert!(second.words.contains("1 task completed before, 1 run again"), "{second:#?}");
    assert_eq!(sandbox.read("ran"), "a\nb\nb\nc\n");
    assert!(sandbox.read("seen").contains("\"a\":{\"n\":7}"), "{}", sandbox.read("seen"));
    let third = sandbox.run(&["run", "job.yaml", "--json"]).ok();
    assert_ne!(third.json()["jobId"], first.json()["jobId"]);
}

#[test]
fn resume_names_what_differs() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "job.yaml",
        "name: x\ntasks:\n- {taskId: a, run: exit 1, retry: {maxAttempts: 1}}\n- {taskId: b, run: 'true'}\n",
    );
    assert_eq!(sandbox.run(&["run", "job.yaml"]).code, 1);
    sandbox.write(
        "job.yaml",
        "name: x\ntasks:\n- {taskId: a, run: exit 1}\n- {taskId: c, run: 'true', dependsOn: [a]}\n",
    );
    let ran = sandbox.run(&["run", "job.yaml", "--resume"]);
    assert_eq!(ran.code, 2, "{ran:#?}");
    assert!(
        ran.words
            .contains("  task c is in the file, not in the job\n  task b is in the job, not in the file\n"),
        "{ran:#?}"
    );
    sandbox.write("job.yaml", "name: x\ntasks:\n- {taskId: a, run: exit 0}\n- {taskId: b, run: 'true'}\n");
    let ran = sandbox.run(&["run", "job.yaml", "--resume"]);
    assert_eq!(ran.code, 1, "the job keeps what it was submitted with: {ran:#?}");
    assert!(
        ran.words.contains("task a was changed in the file; the job goes on with what it was submitted with"),
        "{ran:#?}"
    );
    sandbox
        .write("job.yaml", "name: x\ntasks:\n- {taskId: a, run: exit 1}\n- {taskId: b, run: 'true; true'}\n");
    let ran = sandbox.run(&["run", "job.yaml", "--resume"]);
    assert!(ran.words.contains("task b was changed in the file but is completed, and stays so;"), "{ran:#?}");
}

/// A changed file is taken for what did not complete: other work, and further tasks.
#[test]
fn resume_with_update_takes_a_changed_file() {
    let sandbox = Sandbox::new();
    let job = |a: &str, b: &str, more: &str| {
        format!(
            "name: x\ntasks:\n- {{taskId: a, run: 'echo {a} >> ran'}}\n\
             - {{taskId: b, run: '{b}', dependsOn: [a], retry: {{maxAttempts: 1}}}}\n{more}"
        )
    };
    sandbox.write("job.yaml", &job("a", "exit 1", ""));
    let first = sandbox.run(&["run", "job.yaml", "--json"]);
    assert_eq!(first.code, 1, "{first:#?}");
    let alone = sandbox.run(&["run", "job.yaml", "--update"]);
    assert_eq!(alone.code, 2, "it is for --resume: {alone:#?}");
    sandbox.write("job.yaml", "name: x\ntasks:\n- {taskId: b, run: 'true'}\n");
    let removed = sandbox.run(&["run", "job.yaml", "--resume", "--update"]);
    assert_eq!(removed.code, 2, "{removed:#?}");
    assert!(removed.words.contains("job.yaml:3:3: tasks[0].dependsOn: differs"), "{removed:#?}");
    assert!(removed.words.contains("tasks: lacks a, which is a task of the job"), "{removed:#?}");
    let more = "- {taskId: c, run: 'echo c >> ran', dependsOn: [b]}\n";
    sandbox.write("job.yaml", &job("other", "echo mended >> ran", more));
    let second = sandbox.run(&["run", "job.yaml", "--resume", "--update", "--json"]).ok();
    assert_eq!(second.json()["jobId"], first.json()["jobId"]);
    for line in [
        "task a is completed; its change in the file is not taken",
        "task b goes on with what the file says now",
        "task c is new",
        "1 task completed before, 1 run again",
    ] {
        assert!(second.words.contains(line), "{line}: {second:#?}");
    }
    assert_eq!(sandbox.read("ran"), "a\nmended\nc\n");
    let events = sandbox.run(&["events", "query", "--type", "Job Tasks Changed", "--json"]).ok().json();
    let told = &events["items"][0]["properties"];
    assert_eq!((&told["source"], &told["taskCount"]), (&json!("update"), &json!(1)));
    assert_eq!(told["tasks"], json!([{ "taskId": "b", "fields": ["run"] }]), "{events:#}");
    assert!(told["by"].as_str().is_some_and(|by| !by.is_empty()), "{events:#}");
    sandbox.run(&["verify"]).ok();
}

/// A task that failed by its definition runs again with the one that was mended.
#[test]
fn a_resume_takes_the_newest_definition_when_it_is_asked_to() {
    let sandbox = Sandbox::new();
    let define = |how: &str, command: &str| {
        sandbox.write("load.yaml", &format!("name: load\ncommand: '{command}'\nretry: {{maxAttempts: 1}}\n"));
        sandbox.run(&["definitions", how, "load.yaml"]).ok();
    };
    let server = sandbox.serve(&[], &[]);
    define("create", "exit 1");
    sandbox.write("job.yaml", "name: x\ntasks:\n- {taskId: a, name: load}\n");
    let job =
        sandbox.run(&["submit", "job.yaml", "--json"]).ok().json()["jobId"].as_str().unwrap().to_owned();
    let status = || {
        let job = sandbox.run(&["jobs", "get", &job, "--json"]).ok().json();
        job["status"].as_str().unwrap().to_owned()
    };
    eventually("that it failed", || status() == "failed");
    define("update", "true");
    sandbox.run(&["jobs", "resume", &job]).ok();
    eventually("that it failed again", || status() == "failed");
    sandbox.run(&["jobs", "resume", &job, "--newest"]).ok();
    eventually("that it completed", || status() == "completed");
    server.stop().ok();
}

/// Work that a file brings along may name variables of the operator's list, and directories for its programs.
#[test]
fn secrets_and_path_of_a_job_file_reach_its_tasks() {
    let sandbox = Sandbox::new();
    std::fs::create_dir(sandbox.dir.join("bin")).unwrap();
    let program = sandbox.write("bin/greet", "#!/bin/sh\necho \"{\\\"said\\\":\\\"$DB_LOGIN\\\"}\"\n");
    let mut mode = std::fs::metadata(&program).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    let job = |secrets: &str| {
        format!("name: x\ntasks:\n- {{taskId: a, run: [greet], path: [bin], secrets: [{secrets}]}}\n")
    };
    let settings =
        [("TASK_SECRETS", "DB_LOGIN"), ("DB_LOGIN", "ann:correct-horse"), ("OTHER", "not-for-tasks")];
    sandbox.write("job.yaml", &job("DB_LOGIN, OTHER"));
    let refused = sandbox.run_with(&["run", "job.yaml"], &settings);
    assert_eq!(refused.code, 2, "{refused:#?}");
    assert!(
        refused.words.contains("tasks[0].secrets[1]: is OTHER, which TASK_SECRETS does not list"),
        "{refused:#?}"
    );
    sandbox.write("job.yaml", &job("DB_LOGIN"));
    let ran = sandbox.run_with(&["run", "job.yaml", "--json"], &settings).ok();
    assert_eq!(ran.json()["tasks"]["a"]["output"], json!({ "said": "[REDACTED]" }), "{ran:#?}");
    let unlisted = sandbox.run_with(&["run", "job.yaml"], &settings[1..]);
    assert_eq!(unlisted.code, 2, "nothing is listed: {unlisted:#?}");
}

#[test]
fn what_is_wrong_in_a_file_is_told_with_its_line() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "job.yaml",
        "tasks:\n  - taskId: a\n    run: [x]\n    timeout: 10y\n  - taskId: b\n    runs: y\n",
    );
    let ran = sandbox.run(&["run", "job.yaml"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{ran:#?}");
    let lines: Vec<_> = ran.words.lines().collect();
    assert!(lines[0].starts_with("job.yaml:4:14: tasks[0].timeout: "), "{ran:#?}");
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("job.yaml:6:11: tasks[1].runs: unknown field; did you mean run?")),
        "{ran:#?}"
    );
    assert!(!sandbox.dir.join(".tidemill").exists(), "nothing is made for a file that is wrong");
    sandbox.write("job.yaml", "tasks:\n- {taskId: a, name: nobody-knows}\n");
    let ran = sandbox.run(&["run", "job.yaml"]);
    assert_eq!(ran.code, 2, "{ran:#?}");
    assert!(
        ran.words.starts_with("job.yaml:2:21: tasks[0].name: is nobody-knows, which is no task definition"),
        "{ran:#?}"
    );
    for (text, expected) in [
        ("tasks:\n- {taskId: a, agent: {prompt: ''}}\n", "job.yaml:2:31: tasks[0].agent.prompt: is empty"),
        ("tasks:\n- {taskId: a, script: 1}\n", "job.yaml:2:23: tasks[0].script: "),
        ("tasks:\n- {taskId: a, run: x, onFailure: wait}\n", "job.yaml:2:34: tasks[0].onFailure: "),
        ("tasks: [\n", "job.yaml:2:1: "),
    ] {
        sandbox.write("job.yaml", text);
        let ran = sandbox.run(&["run", "job.yaml"]);
        assert_eq!(ran.code, 2, "{ran:#?}");
        assert!(ran.words.starts_with(expected), "{ran:#?}");
    }
    let missing = sandbox.run(&["run", "none.yaml"]);
    assert_eq!(missing.code, 2);
    assert!(missing.words.starts_with("tidemill: cannot read none.yaml: "), "{missing:#?}");
}

/// The first command of the README, on a copy of what it counts.
#[test]
fn the_example_runs() {
    let sandbox = Sandbox::new();
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/hello.yaml");
    sandbox.write("lib.rs", "fn one() {}\n// TODO two\n");
    sandbox.write("README.md", "three words here\n");
    let ran = sandbox.run(&["run", example, "--json"]).ok();
    let report = ran.json();
    assert_eq!(report["tasks"]["flaky"]["attempt"], 2);
    let expected = json!({ "files": 2, "linesOfRust": 2, "words": 3, "todos": 1, "attemptsOfFlaky": 2 });
    assert_eq!(report["tasks"]["report"]["output"], expected);
}

/// JO-01 … JO-04, JO-08, JO-09, JO-12, JO-23: the sample graph, by its events.
#[test]
fn the_sample_graph_runs_in_order() {
    let sandbox = Sandbox::new();
    let job = "\
name: sample
tasks:
- {taskId: task-A, run: 'touch a; while [ ! -e b ]; do sleep 0.02; done; echo \"{\\\"from\\\":\\\"A\\\"}\"'}
- {taskId: task-B, run: 'touch b; while [ ! -e a ]; do sleep 0.02; done; echo \"{\\\"from\\\":\\\"B\\\"}\"'}
- {taskId: task-C, run: 'echo \"{\\\"from\\\":\\\"C\\\"}\"', dependsOn: [task-A]}
- {taskId: task-D, run: 'echo \"{\\\"from\\\":\\\"D\\\"}\"', dependsOn: [task-A, task-B]}
- {taskId: task-E, run: 'cp \"$INPUT_FILE\" input.json', dependsOn: [task-C, task-D], input: {own: 1}}
";
    sandbox.write("job.yaml", job);
    // A and B wait for each other, so they end only if they run at the same time.
    let report = sandbox.run(&["run", "job.yaml", "--json"]).ok().json();
    let input: serde_json::Value = serde_json::from_str(&sandbox.read("input.json")).unwrap();
    let expected =
        json!({ "own": 1, "dependencyOutputs": { "task-C": { "from": "C" }, "task-D": { "from": "D" } } });
    assert_eq!(input, expected);
    let query = |kind: &str| {
        let ran = sandbox.run(&["events", "query", "--type", kind, "--json"]).ok().json();
        ran["items"].as_array().unwrap().clone()
    };
    let completed = query("Task Completed");
    let order: Vec<_> =
        completed.iter().map(|event| event["properties"]["taskId"].as_str().unwrap()).collect();
    let at = |task: &str| order.iter().position(|found| *found == task).unwrap();
    assert_eq!(order.len(), 5);
    assert!(
        at("task-A") < at("task-C") && at("task-A") < at("task-D") && at("task-B") < at("task-D"),
        "{order:?}"
    );
    assert_eq!(order[4], "task-E");
    let pending = query("Task Pending");
    assert_eq!(pending.len(), 5, "one message for each task");
    let of_c = pending.iter().find(|event| event["properties"]["taskId"] == "task-C").unwrap();
    assert_eq!(
        (&of_c["properties"]["dependsOn"], &of_c["properties"]["jobId"]),
        (&json!(["task-A"]), &report["jobId"])
    );
    let done = query("Job Completed");
    assert_eq!((done.len(), &done[0]["properties"]["totalTasks"]), (1, &json!(5)));
}

/// JO-19: the same job twice in one directory.
#[test]
fn the_same_task_ids_in_two_jobs_do_not_meet() {
    let sandbox = Sandbox::new();
    sandbox.write(
        "job.yaml",
        "tasks:\n- {taskId: a, run: echo x >> ran}\n- {taskId: b, run: echo y >> ran, dependsOn: [a]}\n",
    );
    for _ in 0..2 {
        sandbox.run(&["run", "job.yaml"]).ok();
    }
    assert_eq!(sandbox.read("ran"), "x\ny\nx\ny\n");
}

#[test]
fn children_have_the_limit_of_open_files_that_the_program_started_with() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", "tasks: [{taskId: limit, run: 'echo \"{\\\"files\\\":$(ulimit -Sn)}\"'}]\n");
    let program = env!("CARGO_BIN_EXE_tidemill");
    let ran = std::process::Command::new("sh")
        .args(["-c", "ulimit -Sn 311; exec \"$0\" run job.yaml", program])
        .current_dir(&sandbox.dir)
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&ran.stdout), "limit: {\"files\":311}\n", "{ran:?}");
}

#[test]
fn tasks_run_as_another_user_if_root_says_so() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", "tasks: [{taskId: who, run: 'echo \"{\\\"uid\\\":$(id -u)}\"'}]\n");
    let ran = sandbox.run(&["run", "job.yaml", "--run-as", "65534:65534"]);
    if rustix::process::geteuid().is_root() {
        assert_eq!(ran.ok().out, "who: {\"uid\":65534}\n");
    } else {
        assert_eq!(ran.code, 2, "{ran:#?}");
        assert!(ran.words.contains("TIDEMILL_RUN_AS"), "{ran:#?}");
    }
    let ran = sandbox.run(&["run", "job.yaml", "--run-as", "nobody-at-all"]);
    assert_eq!(ran.code, 2, "{ran:#?}");
    assert!(ran.words.contains("--run-as"), "{ran:#?}");
}

#[test]
fn plain_lines_come_in_the_order_of_time() {
    let sandbox = Sandbox::new();
    let task = |task: u32| {
        let pause = task * 7 % 10;
        format!("- {{taskId: t{task}, run: 'echo one; echo two; sleep 0.0{pause}; echo three'}}\n")
    };
    let mut job = format!("tasks:\n{}", (0..12).map(task).collect::<String>());
    job += "- {taskId: last, run: echo end, dependsOn: [t0, t5, t11]}\n";
    sandbox.write("job.yaml", &job);
    let ran = sandbox.run(&["run", "job.yaml", "--concurrency", "4"]).ok();
    let is_timed =
        |line: &&str| line.as_bytes().get(2) == Some(&b':') && line.as_bytes().get(8) == Some(&b'.');
    let lines: Vec<&str> = ran.words.lines().filter(is_timed).collect();
    // The first line, and of each task its start, what it said, and its end.
    assert_eq!(lines.len(), 1 + 12 * 5 + 3, "{ran:#?}");
    assert!(lines.is_sorted_by_key(|line| &line[..12]), "{ran:#?}");
    for task in 0..12 {
        let of_task: Vec<_> =
            lines.iter().filter_map(|line| line[13..].strip_prefix(&format!("t{task} "))).collect();
        let [start, one, two, three, end] = of_task[..] else { panic!("{of_task:?}") };
        assert_eq!([start, one, two, three], ["started", "| one", "| two", "| three"], "{of_task:?}");
        assert!(end.starts_with("completed in "), "{end}");
    }
}
