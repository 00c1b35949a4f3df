//! What a child says: results, errors, logs, floods and garbage.

use tidemill_model::work::runner_spec::RunnerSpec;

use crate::lab::{Lab, argv, options, shell};

fn python(text: &str) -> RunnerSpec {
    argv(&["python3", "-c", text])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_is_taken_from_the_first_way_that_is_used() {
    let lab = Lab::working();
    let line = r#"echo '@@tidemill {"kind":"result","output":{"from":"line"},"usage":{"inputTokens":5}}'"#;
    let file = r#"echo '{"from":"file"}' > $TIDEMILL_OUTPUT_DIR/artifacts/task-result.json"#;
    let last = r#"echo '{"from":"last"}'"#;
    for (id, text, expected) in [
        ("all", format!("{line}; {file}; {last}"), r#"{"from":"line"}"#),
        ("file-and-last", format!("{last}; {file}; {last}"), r#"{"from":"file"}"#),
        ("last", format!("echo x; {last}"), r#"{"from":"last"}"#),
        ("last-without-newline", "printf '{\"a\":1}'".to_owned(), r#"{"a":1}"#),
        ("last-then-blank", format!("{last}; echo; echo '  '"), r#"{"from":"last"}"#),
        ("not-the-last", format!("{last}; echo done"), "{}"),
        ("a-list", "echo '[1]'".to_owned(), "{}"),
        ("broken", "echo '{\"a\":'".to_owned(), "{}"),
        ("on-stderr", format!("{last} >&2"), "{}"),
        ("nothing", "true".to_owned(), "{}"),
        (
            "the-later-line",
            format!("echo '@@tidemill {{\"kind\":\"result\",\"output\":1}}'; {line}"),
            r#"{"from":"line"}"#,
        ),
        ("null", "echo '@@tidemill {\"kind\":\"result\",\"output\":null}'".to_owned(), "null"),
    ] {
        let ended = lab.run(id, &shell(&text)).await;
        let expected: serde_json::Value = serde_json::from_str(expected).unwrap();
        assert_eq!(ended.output(), expected, "{id}");
        if id == "all" {
            assert_eq!(ended.last()["usage"]["inputTokens"], 5);
            assert_eq!(ended.last()["exitCode"], 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_result_comes_as_a_file_inside_the_output_directory() {
    if !crate::parts::has_python() {
        return;
    }
    let lab = Lab::working();
    let large = python(
        r#"import json, os
path = os.environ["TIDEMILL_OUTPUT_DIR"] + "/artifacts/big.json"
json.dump({"x": "y" * 3000000}, open(path, "w"))
print('@@tidemill ' + json.dumps({"kind": "result", "outputFile": path}))"#,
    );
    assert_eq!(lab.run("absolute", &large).await.output()["x"].as_str().unwrap().len(), 3_000_000);
    let inside = |file: &str| format!("echo '@@tidemill {{\"kind\":\"result\",\"outputFile\":\"{file}\"}}'");
    let secret = lab.directory.0.join("secret.json");
    std::fs::write(&secret, r#"{"secret":true}"#).unwrap();
    let dir = lab.directory.0.display();
    for (id, text, category) in [
        ("up", inside("../../../secret.json"), "not-found"),
        ("away", inside(secret.to_str().unwrap()), "not-found"),
        ("link", format!("ln -s {dir}/secret.json $TIDEMILL_OUTPUT_DIR/l; {}", inside("l")), "not-found"),
        ("dir-link", format!("ln -s {dir} $TIDEMILL_OUTPUT_DIR/d; {}", inside("d/secret.json")), "not-found"),
        ("pipe", format!("mkfifo $TIDEMILL_OUTPUT_DIR/p; {}", inside("p")), "not-found"),
        ("missing", inside("none.json"), "not-found"),
        ("broken", format!("echo '{{' > $TIDEMILL_OUTPUT_DIR/b; {}", inside("b")), "parse"),
        ("broken-file", "echo x > $TIDEMILL_OUTPUT_DIR/artifacts/task-result.json".to_owned(), "parse"),
        (
            "too-large",
            "head -c 17000000 /dev/zero > $TIDEMILL_OUTPUT_DIR/artifacts/task-result.json".to_owned(),
            "validation",
        ),
        (
            "a-line-too-long",
            r#"python3 -c 'print("@@tidemill " + "{" + "x" * 2000000)'"#.to_owned(),
            "validation",
        ),
    ] {
        let (found, error) = lab.run(id, &shell(&text)).await.failure();
        assert_eq!(found, category, "{id}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_file_that_cannot_be_used_fails_the_task() {
    let lab = Lab::working();
    let secret = lab.directory.0.join("secret.json");
    std::fs::write(&secret, r#"{"secret":true}"#).unwrap();
    for (id, make, category) in [
        ("link", format!("ln -s {} task-result.json", secret.display()), "validation"),
        ("dangling", "ln -s nowhere task-result.json".to_owned(), "validation"),
        ("pipe", "mkfifo task-result.json".to_owned(), "validation"),
        ("directory", "mkdir task-result.json".to_owned(), "validation"),
        ("no-json", "echo x > task-result.json".to_owned(), "parse"),
        ("empty", "true > task-result.json".to_owned(), "parse"),
    ] {
        // Another result further down the list does not make up for it.
        let text = format!("cd $TIDEMILL_OUTPUT_DIR/artifacts && {make} && echo '{{\"a\":1}}'");
        let key = lab.submit(id, "{}", options(&shell(&text))).await;
        let (found, error) = lab.ended(&key).await.failure();
        assert_eq!(found, category, "{id}: {error}");
        assert!(error.contains("artifacts/task-result.json"), "{id}: {error}");
        if category == "validation" {
            let kept = lab.blob(&key, "r1-a1/artifacts/task-result.json").await;
            assert_eq!(kept, None, "{id} is not kept");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_readers_cannot_read_fails_the_task() {
    let lab = Lab::working();
    for (id, output, problem) in [
        ("number", r#"{"n":1e999}"#, "holds a number beyond the range of a double"),
        ("half", r#"{"a":"\ud800"}"#, "holds a text with half of a surrogate pair"),
    ] {
        let done = lab.run(id, &shell(&format!("printf '%s\\n' '{output}'"))).await;
        let (category, error) = done.failure();
        assert_eq!((&*category, &*error), ("validation", &*format!("the result {problem}")), "{id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_is_nested_too_deep_fails_the_task() {
    let lab = Lab::working();
    let nested = |depth: usize| {
        let many = |sign: char| format!("$(head -c {} /dev/zero | tr '\\0' '{sign}')", depth - 1);
        format!("value=\"{{\\\"a\\\":{}{}}}\"", many('['), many(']'))
    };
    let line = r#"echo "@@tidemill {\"kind\":\"result\",\"output\":$value}""#;
    let file = r#"echo "$value" > $TIDEMILL_OUTPUT_DIR/artifacts/task-result.json"#;
    let last = r#"echo "$value""#;
    for (id, give) in [("line", line), ("file", file), ("last", last)] {
        let deep = lab.run(&format!("{id}-deep"), &shell(&format!("{}; {give}", nested(50_000)))).await;
        let (category, error) = deep.failure();
        assert_eq!(category, "validation", "{id}: {error}");
        assert_eq!(error, "the result is nested 50000 levels deep; the limit is 100", "{id}");
        let over = lab.run(&format!("{id}-over"), &shell(&format!("{}; {give}", nested(101)))).await;
        assert_eq!(over.failure().0, "validation", "{id}");
        let fits = lab.run(&format!("{id}-fits"), &shell(&format!("{}; {give}", nested(100)))).await;
        assert!(fits.output()["a"].is_array(), "{id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wk_16_every_line_is_shown_with_the_prefix_and_kept() {
    let lab = Lab::working();
    let text = "echo one; echo two >&2; printf 'three'";
    let key = lab.submit("req-1", "{}", options(&shell(text))).await;
    lab.ended(&key).await.output();
    let mut shown = lab.shown();
    shown.sort();
    assert_eq!(shown, ["[WORKFLOW:req-1] one", "[WORKFLOW:req-1] three", "[WORKFLOW:req-1] two"]);
    let log = String::from_utf8(lab.blob(&key, "r1-a1/logs/output.log").await.unwrap()).unwrap();
    let mut lines: Vec<_> = log.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["one", "three", "two"]);
    assert_eq!(std::fs::read_to_string(lab.output("req-1/logs/output.log")).unwrap(), log);
    let live = lab.engine.live_logs().read(&key, 0);
    assert_eq!((live.ended, live.bytes.as_slice()), (true, log.as_bytes()));
    // What prints nothing leaves no log.
    let key = lab.submit("req-2", "{}", options(&shell("true"))).await;
    lab.ended(&key).await.output();
    assert_eq!(lab.blob(&key, "r1-a1/logs/output.log").await, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_and_huge_lines_are_logged_as_far_as_they_go() {
    if !crate::parts::has_python() {
        return;
    }
    let lab = Lab::working();
    let text = r#"import sys
out = sys.stdout.buffer
out.write(b"\x00\xff\xfe\xc3(\n" + b"z" * 3000000 + b"\nafter\n")
out.write(b"@@tidemill {not json\n@@tidemill {\"kind\":\"metric\",\"n\":1}\n")
out.write(b"{\"ok\": true}\n")"#;
    let key = lab.submit("req-1", "{}", options(&python(text))).await;
    assert_eq!(lab.ended(&key).await.output(), serde_json::json!({"ok": true}));
    let log = lab.blob(&key, "r1-a1/logs/output.log").await.unwrap();
    assert!(log.starts_with(b"\x00\xff\xfe\xc3(\nzzz"));
    assert!(log.len() < 1_100_000, "{}", log.len());
    let text = String::from_utf8_lossy(&log);
    for part in [
        "[tidemill: this line is cut here]\nafter\n",
        "@@tidemill {not json",
        "of kind \"metric\" is passed over",
    ] {
        assert!(text.contains(part), "{part}");
    }
}

/// The largest resident size of this process so far, in KiB.
fn peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_output_does_not_fill_memory_and_its_log_has_an_end() {
    let mut lab = Lab::idle();
    lab.config.sink = std::sync::Arc::new(tidemill_worker::NoSink);
    lab.work("worker-1");
    let before = peak_kib();
    let flood =
        "head -c 100000000 /dev/zero; yes \"$(head -c 1000 /dev/zero | tr '\\0' x)\" | head -c 100000000";
    let key = lab.submit("req-1", "{}", options(&shell(flood))).await;
    lab.ended(&key).await.output();
    let grown = peak_kib() - before;
    // One copy of the log on its way to the blob store, which other tests of this process may double.
    assert!(grown < 400 * 1024, "{grown} KiB");
    let size = std::fs::metadata(lab.output("req-1/logs/output.log")).unwrap().len();
    assert!((60_000_000..=64 * 1024 * 1024 + 4096).contains(&size), "{size}");
    let log = lab.blob(&key, "r1-a1/logs/output.log").await.expect("it is kept");
    assert_eq!(log.len() as u64, size);
    assert!(log.ends_with(b"the log is cut here: its limit is 64 MiB\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_too_much_to_keep_is_left_out_and_said() {
    let mut lab = Lab::idle();
    // Even so it stays where it is.
    lab.config.keep_files = false;
    lab.work("worker-1");
    let text = "cd $TIDEMILL_OUTPUT_DIR/artifacts; head -c 70000000 /dev/zero > big; echo small > small";
    let key = lab.submit("req-1", "{}", options(&shell(text))).await;
    lab.ended(&key).await.output();
    lab.shut_down(std::time::Duration::from_secs(10)).await;
    assert_eq!(std::fs::metadata(lab.output("req-1/artifacts/big")).unwrap().len(), 70_000_000);
    let log = std::fs::read_to_string(lab.output("req-1/logs/output.log")).unwrap();
    assert!(log.contains("artifacts/big is 70000000 bytes and is not kept"), "{log}");
    assert_eq!(lab.blob(&key, "r1-a1/artifacts/big").await, None);
    assert_eq!(lab.blob(&key, "r1-a1/artifacts/small").await.as_deref(), Some(&b"small\n"[..]));
}
