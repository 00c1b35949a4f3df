//! How children end, and what is recorded of it.

use std::time::Duration;

use tidemill_model::TaskOptions;
use tidemill_model::work::runner_spec::RunnerSpec;

use crate::lab::{Lab, argv, eventually, is_alive, options, pids_in, shell};

/// A child with a grandchild that left its group and session and lost its parent, and one that even hides its mark.
/// Their process ids go to a file.
fn daemons(dir: &std::path::Path, then: &str) -> String {
    let pids = dir.join("pids");
    let pids = pids.display();
    format!(
        "echo $$ >> {pids}
         (setsid sh -c 'trap \"\" TERM; (sleep 300 & echo $! >> {pids}; exec sleep 300) & echo $! >> {pids}' &)
         (sleep 300 & echo $! >> {pids})
         (env -i PATH=\"$PATH\" setsid sh -c 'echo $$ >> {pids}; exec sleep 300' &)
         {then}"
    )
}

fn limited(execution: &RunnerSpec, timeout_ms: u64) -> TaskOptions {
    TaskOptions { timeout_ms: Some(timeout_ms), ..options(execution) }
}

#[tokio::test(flavor = "multi_thread")]
async fn wk_25_to_27_exit_codes_signals_and_texts_have_their_category() {
    let (lab, has_python) = (Lab::working(), crate::parts::has_python());
    for (id, text, category, attempts, words) in [
        ("auth", "echo 'Error: status 401' >&2; exit 1", "auth", 1, "exit code 1: Error: status 401"),
        ("validation", "echo ValidationError >&2; exit 1", "validation", 1, "ValidationError"),
        ("parse", "echo 'SyntaxError: x in JSON' >&2; exit 1", "parse", 1, "SyntaxError"),
        ("not-found", "cat /nowhere/at/all", "not-found", 1, "No such file"),
        ("programming", "echo 'TypeError: x' >&2; exit 1", "programming", 1, "TypeError"),
        ("unknown-command", "no-such-program-here", "not-found", 1, "exit code 127"),
        ("not-executable", "exec /etc/passwd", "not-found", 1, "exit code 126"),
        ("timeout", "echo AbortError >&2; exit 1", "timeout", 3, "AbortError"),
        ("network", "echo ETIMEDOUT >&2; exit 1", "network", 3, "ETIMEDOUT"),
        ("rate-limit", "echo '429 Too Many Requests' >&2; exit 1", "rate-limit", 3, "429"),
        ("server-error", "echo 'HTTP 503' >&2; exit 1", "server-error", 3, "503"),
        ("unknown", "exit 1", "unknown", 3, "exit code 1"),
        ("other-code", "exit 17", "server-error", 3, "exit code 17"),
        ("killed", "kill -9 $$", "server-error", 3, "killed by SIGKILL (signal 9)"),
        ("crashed", "kill -SEGV $$", "server-error", 3, "killed by SIGSEGV (signal 11)"),
        ("on-stdout", "echo the disk is sad; exit 1", "unknown", 3, "exit code 1: the disk is sad"),
        (
            "record",
            r#"echo '@@tidemill {"kind":"error","name":"E","status":403,"message":"no"}'; exit 5"#,
            "auth",
            1,
            "E: no (exit code 5)",
        ),
        ("python", "python3 -c '{}[\"timeout\"]'", "programming", 1, "KeyError: 'timeout'"),
        ("python-import", "python3 -c 'import nothing_like_it'", "not-found", 1, "ModuleNotFoundError"),
        ("python-json", "python3 -c 'import json; json.loads(\"{\")'", "parse", 1, "JSONDecodeError"),
        (
            "panic",
            "echo \"thread 'main' panicked at src/main.rs:1:1:\" >&2; exit 101",
            "programming",
            1,
            "panicked",
        ),
    ] {
        if text.contains("python3") && !has_python {
            continue;
        }
        let ended = lab.run(id, &shell(text)).await;
        let (found, error) = ended.failure();
        // Texts of shells differ; what was recorded last of a retryable error is the last attempt's.
        let last = if attempts > 1 {
            ended.first_of("Task Processing Failed")["error"].as_str().unwrap().to_owned()
        } else {
            error
        };
        assert_eq!(
            (found.as_str(), ended.count("Task Processing Started")),
            (category, attempts),
            "{id}: {last}"
        );
        assert!(last.contains(words), "{id}: {last}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_program_fails_at_once() {
    let lab = Lab::working();
    for (id, program, words) in [
        ("missing", "/nowhere/program", "/nowhere/program could not be started: No such file"),
        ("a-file", "/etc/passwd", "could not be started: Permission denied"),
        ("a-directory", "/tmp", "could not be started"),
    ] {
        let ended = lab.run(id, &argv(&[program])).await;
        let (category, error) = ended.failure();
        assert_eq!((category.as_str(), ended.last()["retryCount"].as_u64()), ("not-found", Some(1)), "{id}");
        assert!(error.contains(words), "{id}: {error}");
        assert_eq!(ended.count("Task Processing Started"), 0, "nothing began");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wk_17_and_18_a_timeout_ends_everything_even_what_traps_and_hides() {
    let lab = Lab::working();
    let dir = &lab.directory.0;
    let text = daemons(dir, "trap 'echo asked to end' TERM; sleep 300 & wait; sleep 300 & wait");
    let key = lab.submit("req-1", "{}", limited(&shell(&text), 1_000)).await;
    let pids = pids_in(&dir.join("pids"), 5).await;
    let ended = lab.ended(&key).await;
    assert_eq!(ended.types().last(), Some(&"Task Timeout"));
    let last = ended.last();
    assert_eq!(
        (last["signal"].as_str(), last["timeoutMs"].as_u64()),
        (Some("SIGKILL"), Some(1_000)),
        "{last}"
    );
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "gone before the outcome is recorded: {pids:?}");
    assert!(lab.shown().contains(&"[WORKFLOW:req-1] asked to end".to_owned()), "{:?}", lab.shown());
    // One that ends when asked, even with success, has timed out all the same.
    let text = "trap 'exit 0' TERM; echo x; sleep 300 & wait";
    let key = lab.submit("req-2", "{}", limited(&shell(text), 1_000)).await;
    let ended = lab.ended(&key).await;
    assert_eq!(
        (ended.types().last(), ended.last()["signal"].as_str()),
        (Some(&"Task Timeout"), Some("SIGTERM"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_ends_everything_and_nothing_more_is_written() {
    let lab = Lab::working();
    let dir = &lab.directory.0;
    let text = daemons(dir, "trap '' TERM; sleep 300 & wait; sleep 300; echo late");
    let (job, key) = lab.submit_job("step", &shell(&text)).await;
    let pids = pids_in(&dir.join("pids"), 5).await;
    lab.until(&key, |ended| ended.count("Task Processing Started") == 1).await;
    let cancelled = std::time::Instant::now();
    lab.engine.cancel(key.tenant.clone(), job, "test".to_owned(), None).await.unwrap();
    eventually("all processes are gone", || pids.iter().all(|pid| !is_alive(*pid))).await;
    let took = cancelled.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    let ended = lab.history(&key).await;
    assert_eq!(ended.types().last(), Some(&"Task Failed"));
    assert_eq!(ended.failure().0, "cancelled");
    eventually("the attempt's directory is gone", || !lab.output(key.request.as_str()).exists()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_for_too_long_is_a_failure_that_is_tried_again() {
    let lab = Lab::working();
    let execution = RunnerSpec {
        idle_timeout_ms: Some(400),
        ..shell(
            "if [ $TIDEMILL_ATTEMPT = 1 ]; then exec sleep 300; fi; for i in 1 2 3 4 5 6; do echo $i; sleep 0.1; done",
        )
    };
    let ended = lab.run("req-1", &execution).await;
    assert_eq!(ended.types().last(), Some(&"Task Completed"), "{:?}", ended.last());
    let failed = ended.first_of("Task Processing Failed");
    assert_eq!(failed["errorCategory"], "timeout");
    assert_eq!(failed["error"], "no output for 0.4 s; ended with SIGTERM");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_child_leaves_behind_is_ended_with_the_attempt() {
    let lab = Lab::working();
    let dir = &lab.directory.0;
    let key = lab.submit("req-1", "{}", options(&shell(&daemons(dir, "sleep 0.2; echo '{\"ok\":1}'")))).await;
    let pids = pids_in(&dir.join("pids"), 5).await;
    assert_eq!(lab.ended(&key).await.output(), serde_json::json!({"ok": 1}));
    assert!(pids.iter().all(|pid| !is_alive(*pid)), "{pids:?}");
    // What ends by itself soon after may have its last word.
    let text = "(sleep 0.2; echo '{\"late\":true}') & true";
    assert_eq!(lab.run("req-2", &shell(text)).await.output(), serde_json::json!({"late": true}));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_hides_between_tasks_is_gone_with_the_last_of_them() {
    let lab = Lab::working();
    let dir = lab.directory.0.clone();
    let mut keys = Vec::new();
    for name in ["a", "b", "c"] {
        let own = dir.join(name);
        std::fs::create_dir(&own).unwrap();
        let then = format!("while [ ! -e {}/go-{name} ]; do sleep 0.02; done", dir.display());
        keys.push((name, lab.submit(name, "{}", options(&shell(&daemons(&own, &then)))).await));
    }
    let mut pids = Vec::new();
    for (name, _) in &keys {
        pids.extend(pids_in(&dir.join(name).join("pids"), 5).await);
    }
    for (name, key) in &keys {
        std::fs::write(dir.join(format!("go-{name}")), "").unwrap();
        lab.ended(key).await.output();
    }
    eventually("nothing is left", || pids.iter().all(|pid| !is_alive(*pid))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_runs_out_of_its_own_limit_fails_and_is_tried_again() {
    if !crate::parts::has_python() {
        return;
    }
    let lab = Lab::working();
    let text = "ulimit -v 200000; exec python3 -c 'x = bytearray(1 << 30)'";
    let ended = lab.run("req-1", &shell(text)).await;
    assert_eq!(ended.count("Task Processing Started"), 3);
    let failed = ended.first_of("Task Processing Failed");
    assert_eq!(failed["errorCategory"], "server-error", "{failed}");
    assert!(failed["error"].as_str().unwrap().contains("MemoryError"), "{failed}");
}

/// A control group with little memory, for as long as the test runs.
struct SmallGroup(std::path::PathBuf);

impl SmallGroup {
    /// None where this process may not make one.
    fn make() -> Option<Self> {
        let groups = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let (root, own) = groups.lines().find_map(|line| {
            let mut parts = line.splitn(3, ':').skip(1);
            match (parts.next()?, parts.next()?) {
                ("memory", path) => Some(("/sys/fs/cgroup/memory", path.to_owned())),
                ("", path) => Some(("/sys/fs/cgroup", path.to_owned())),
                _ => None,
            }
        })?;
        let dir = std::path::PathBuf::from(root)
            .join(own.trim_start_matches('/'))
            .join(format!("tidemill-test-{}", std::process::id()));
        std::fs::create_dir(&dir).ok()?;
        let group = Self(dir);
        let limited = ["memory.limit_in_bytes", "memory.max"]
            .iter()
            .any(|file| std::fs::write(group.0.join(file), "40000000").is_ok());
        limited.then_some(group)
    }
}

impl Drop for SmallGroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kill_of_the_kernel_for_want_of_memory_is_told_apart() {
    if !crate::parts::has_python() {
        return;
    }
    let Some(group) = SmallGroup::make() else {
        println!("left out: this process may not make control groups");
        return;
    };
    let lab = Lab::working();
    let text =
        format!("echo $$ > {}/cgroup.procs; exec python3 -c 'x = bytearray(400 << 20)'", group.0.display());
    let ended = lab.run("req-1", &shell(&text)).await;
    let failed = ended.first_of("Task Processing Failed");
    assert_eq!(failed["errorCategory"], "server-error");
    let error = failed["error"].as_str().unwrap();
    assert!(error.starts_with("killed by the kernel: out of memory (peak "), "{error}");
    assert_eq!(ended.count("Task Processing Started"), 3, "it is tried again");
}
