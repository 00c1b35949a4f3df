//! What a child is given: arguments, input, environment, directories.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;

use tidemill_engine::engine::Define;
use tidemill_model::authored::definition::{DefinitionDraft, Runner};
use tidemill_model::work::runner_spec::{Pinned, Run, RunnerSpec};
use tidemill_model::{TaskName, TenantId};

use crate::lab::{Lab, argv, env, listed, options, shell, tenant};

pub(crate) async fn define(lab: &Lab, name: &str, command: Run, secrets: &[&str]) -> RunnerSpec {
    let draft = serde_json::json!({
        "name": name, "runner": "command", "command": command, "secrets": secrets, "env": {"MODE": "stored", "KEPT": "1"},
    });
    let draft: DefinitionDraft = serde_json::from_value(draft).unwrap();
    assert_eq!(draft.runner, Runner::Command);
    let definition = lab.engine.define(tenant(), draft, Define::Create).await.unwrap();
    let pinned = Pinned { name: TaskName::new(name).unwrap(), version: definition.version };
    RunnerSpec { definition: Some(pinned), ..RunnerSpec::default() }
}

const SHOW: &str = r#"import json, os, sys
print(json.dumps({"argv": sys.argv[1:], "stdin": sys.stdin.read(), "cwd": os.getcwd(), "env": dict(os.environ)}))"#;

#[tokio::test(flavor = "multi_thread")]
async fn wk_15_a_stored_command_gets_request_id_and_input_and_an_empty_stdin() {
    if !crate::parts::has_python() {
        return;
    }
    let lab = Lab::working();
    let program = ["python3", "-c", SHOW, "own"].map(str::to_owned).to_vec();
    let execution = define(&lab, "show", Run::Argv(program), &[]).await;
    let key = lab.submit("req-1", r#"{"store": "s 1"}"#, options(&execution)).await;
    let output = lab.ended(&key).await.output();
    assert_eq!(output["argv"], serde_json::json!(["own", "req-1", r#"{"store": "s 1"}"#]));
    assert_eq!(output["stdin"], "");
    assert_eq!(output["cwd"], std::env::current_dir().unwrap().to_str().unwrap());
    // An id that looks like an option stands behind `--`.
    let key = lab.submit("-rf", "{}", options(&execution)).await;
    assert_eq!(lab.ended(&key).await.output()["argv"], serde_json::json!(["own", "--", "-rf", "{}"]));
    // The shell has them as $1 and $2.
    let execution =
        define(&lab, "show-sh", Run::Shell(r#"printf '{"one":"%s","two":%s}\n' "$1" "$2""#.into()), &[])
            .await;
    let key = lab.submit("req-2", r#"{"a":1}"#, options(&execution)).await;
    assert_eq!(lab.ended(&key).await.output(), serde_json::json!({"one": "req-2", "two": {"a": 1}}));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_inline_command_gets_the_arguments_it_says_and_no_others() {
    if !crate::parts::has_python() {
        return;
    }
    let lab = Lab::working();
    let output = lab.run("req-1", &argv(&["python3", "-c", SHOW, "a b", ""])).await.output();
    assert_eq!(output["argv"], serde_json::json!(["a b", ""]));
    let text = r#"echo "{\"zero\":\"$0\",\"count\":$#,\"input\":$(cat "$INPUT_FILE")}""#;
    let output = lab.run("req-2", &shell(text)).await.output();
    assert_eq!(output["count"], 0);
    assert_eq!(output["input"], serde_json::json!({}));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_above_64_kib_is_in_its_file_only() {
    if !crate::parts::has_python() {
        return;
    }
    let lab = Lab::working();
    let text = r#"import json, os, sys
with open(os.environ["INPUT_FILE"]) as file: content = file.read()
mode = oct(os.stat(os.environ["INPUT_FILE"]).st_mode & 0o777)
print(json.dumps({"arguments": len(sys.argv) - 1, "size": len(content), "mode": mode}))"#;
    let program = ["python3", "-c", text].map(str::to_owned).to_vec();
    let execution = define(&lab, "size", Run::Argv(program), &[]).await;
    for (size, arguments) in [(65_536, 2), (65_537, 1), (300_000, 1)] {
        let input = format!(r#"{{"x":"{}"}}"#, "y".repeat(size - 8));
        assert_eq!(input.len(), size);
        let key = lab.submit(&format!("req-{size}"), &input, options(&execution)).await;
        let expected = serde_json::json!({"arguments": arguments, "size": size, "mode": "0o600"});
        assert_eq!(lab.ended(&key).await.output(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_input_is_no_argument_where_it_is_not_wanted_there() {
    let text = r#"echo "{\"count\":$#,\"id\":\"$1\",\"input\":$(cat "$INPUT_FILE"),\"shown\":$(tr '\0' '\n' < /proc/$$/cmdline | grep -c 'hidden-[w]ord')}""#;
    let mut lab = Lab::idle();
    lab.work("worker-1");
    let define = async |lab: &Lab, name: &str, input_arg: bool| {
        let draft = serde_json::json!({"name": name, "command": text, "inputArg": input_arg});
        let draft = DefinitionDraft::read(draft).unwrap();
        let definition = lab.engine.define(tenant(), draft, Define::Create).await.unwrap();
        let pinned = Pinned { name: TaskName::new(name).unwrap(), version: definition.version };
        RunnerSpec { definition: Some(pinned), ..RunnerSpec::default() }
    };
    let input = r#"{"word":"hidden-word"}"#;
    let plain = define(&lab, "plain", true).await;
    let hidden = define(&lab, "hidden", false).await;
    let told = |id: &str, count: u32, shown: u32| serde_json::json!({"count": count, "id": id, "input": {"word": "hidden-word"}, "shown": shown});
    let key = lab.submit("req-1", input, options(&plain)).await;
    assert_eq!(lab.ended(&key).await.output(), told("req-1", 2, 1), "as a rule it is one");
    let key = lab.submit("req-2", input, options(&hidden)).await;
    assert_eq!(lab.ended(&key).await.output(), told("req-2", 1, 0));
    // And for all tasks of a worker.
    let mut lab = Lab::idle();
    lab.config.input_arg = false;
    lab.work("worker-1");
    let plain = define(&lab, "plain", true).await;
    let key = lab.submit("req-3", input, options(&plain)).await;
    assert_eq!(lab.ended(&key).await.output(), told("req-3", 1, 0));
}

/// Whatever the umask lets through.
#[tokio::test(flavor = "multi_thread")]
async fn what_tasks_leave_is_for_the_user_of_the_worker_alone() {
    let lab = Lab::working();
    let text = r#"echo said; cd "$TIDEMILL_OUTPUT_DIR"
        echo "{\"dir\":\"$(stat -c %a .)\",\"above\":\"$(stat -c %a ..)\",\"log\":\"$(stat -c %a logs/output.log 2>&1)\"}""#;
    let output = lab.run("req-1", &shell(text)).await.output();
    assert_eq!((&output["dir"], &output["above"]), (&"700".into(), &"700".into()));
    let mode = |path: &str| lab.output(path).metadata().unwrap().permissions().mode() & 0o777;
    for (path, expected) in [
        ("", 0o700),
        (".attempts", 0o700),
        ("req-1", 0o700),
        ("req-1/input.json", 0o600),
        ("req-1/artifacts", 0o700),
        ("req-1/logs", 0o700),
        ("req-1/logs/output.log", 0o600),
    ] {
        assert_eq!(mode(path), expected, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wk_19_and_se_08_a_child_sees_a_short_list_of_the_environment() {
    let mut lab = Lab::idle();
    for (name, value) in [
        ("HOME", "/home/x"),
        ("LC_ALL", "C"),
        ("LANG", "C"),
        ("TERM", "dumb"),
        ("S3_BUCKET", "b"),
        ("SECRET_X", "secret"),
        ("TOKEN_Y", "token"),
        ("AWS_SECRET_ACCESS_KEY", "aws"),
        ("CLAUDE_CODE_OAUTH_TOKEN", "oauth"),
        ("TIDEMILL_API_KEY", "tm_x"),
        ("LD_PRELOAD", "/nothing.so"),
        ("NODE_OPTIONS", "--x"),
        ("TENANT_ID", "of the worker"),
    ] {
        lab.config.environment.push((name.into(), value.into()));
    }
    lab.config.task_secrets = listed("acme:TOKEN_Y");
    lab.work("worker-1");
    // It cannot read files of the names of its other arguments, and fails for them.
    let program = vec!["/bin/cat".to_owned(), "/proc/self/environ".to_owned()];
    let mut execution = define(&lab, "show", Run::Argv(program), &["TOKEN_Y"]).await;
    execution.env = env(&[("MODE", "task")]);
    let (_, key) = lab.submit_job("step-1", &execution).await;
    lab.ended(&key).await;
    let log = String::from_utf8(lab.blob(&key, "r1-a1/logs/output.log").await.unwrap()).unwrap();
    let line = log.lines().find(|line| line.contains("TIDEMILL_FENCE=")).unwrap();
    let seen: BTreeMap<&str, &str> = line.split('\0').filter_map(|entry| entry.split_once('=')).collect();
    let expected = [
        "APP_NAME",
        "HOME",
        "INPUT_FILE",
        "KEPT",
        "LANG",
        "LC_ALL",
        "MODE",
        "PATH",
        "S3_BUCKET",
        "TENANT_ID",
        "TERM",
        "TIDEMILL_ATTEMPT",
        "TIDEMILL_FENCE",
        "TIDEMILL_INPUTS",
        "TIDEMILL_JOB_ID",
        "TIDEMILL_OUTPUT_DIR",
        "TIDEMILL_REQUEST_ID",
        "TIDEMILL_RUN",
        "TIDEMILL_SPAWN",
        "TIDEMILL_TASK_ID",
        "TOKEN_Y",
    ];
    assert_eq!(seen.keys().copied().collect::<Vec<_>>(), expected);
    for (name, value) in [
        ("MODE", "task"),
        ("KEPT", "1"),
        ("TENANT_ID", "acme"),
        ("APP_NAME", "app"),
        ("TIDEMILL_TASK_ID", "step-1"),
        ("TIDEMILL_REQUEST_ID", key.request.as_str()),
        ("TIDEMILL_RUN", "1"),
        ("TIDEMILL_ATTEMPT", "1"),
        ("TIDEMILL_FENCE", "1"),
    ] {
        assert_eq!(seen[name], value, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_is_given_no_variable_that_the_operator_does_not_list() {
    let mut lab = Lab::idle();
    for name in ["DB_URL", "STRIPE_KEY", "SLACK_BOT_TOKEN", "WEBHOOK_SIGNING_KEY", "AWS_SECRET_ACCESS_KEY"] {
        lab.config.environment.push((name.into(), "value-that-is-secret".into()));
    }
    lab.config.task_secrets = listed("DB_URL,other:STRIPE_KEY");
    lab.work("worker-1");
    for (at, name) in
        ["SLACK_BOT_TOKEN", "WEBHOOK_SIGNING_KEY", "AWS_SECRET_ACCESS_KEY", "STRIPE_KEY"].iter().enumerate()
    {
        let command = Run::Shell("echo started >> started".to_owned());
        let execution = define(&lab, &format!("ask-{at}"), command, &["DB_URL", name]).await;
        let key = lab.submit(&format!("req-{at}"), "{}", options(&execution)).await;
        let ended = lab.ended(&key).await;
        let (category, error) = ended.failure();
        assert_eq!((category.as_str(), ended.count("Task Failed")), ("auth", 1), "it is not tried again");
        assert!(error.contains(name) && error.contains("TASK_SECRETS"), "{error}");
        assert_eq!(ended.count("Task Processing Started"), 0, "no program was started: {:?}", ended.types());
        assert!(!lab.output(&format!("req-{at}")).exists());
    }
    let command = Run::Shell("echo \"{\\\"length\\\":${#DB_URL}}\"".to_owned());
    let execution = define(&lab, "listed", command, &["DB_URL"]).await;
    let key = lab.submit("req-9", "{}", options(&execution)).await;
    assert_eq!(lab.ended(&key).await.output(), serde_json::json!({"length": 20}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_does_not_run_without_a_variable_that_nobody_set() {
    let mut lab = Lab::idle();
    lab.config.environment.push(("EMPTY_URL".into(), "".into()));
    lab.config.task_secrets = listed("DB_URL,EMPTY_URL,MODE");
    lab.work("worker-1");
    let command =
        Run::Shell("echo \"{\\\"mode\\\":\\\"$MODE\\\",\\\"url\\\":\\\"$EMPTY_URL$DB_URL\\\"}\"".to_owned());
    let execution = define(&lab, "ask", command.clone(), &["EMPTY_URL", "DB_URL"]).await;
    let key = lab.submit("req-1", "{}", options(&execution)).await;
    let ended = lab.ended(&key).await;
    let (category, error) = ended.failure();
    assert_eq!((category.as_str(), ended.count("Task Failed")), ("auth", 1), "it is not tried again");
    assert_eq!(error, "the task asks for the variable DB_URL, which this worker's environment does not have");
    assert_eq!(ended.count("Task Processing Started"), 0, "no program was started: {:?}", ended.types());
    // One that is set to nothing is set, and a literal value takes the place of one that is not.
    let execution = define(&lab, "have", command, &["EMPTY_URL", "MODE"]).await;
    let key = lab.submit("req-2", "{}", options(&execution)).await;
    assert_eq!(lab.ended(&key).await.output(), serde_json::json!({"mode": "stored", "url": ""}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_stays_one_without_the_secrets_in_it() {
    let mut lab = Lab::idle();
    lab.config.environment.push(("PIN".into(), "1234567890123".into()));
    lab.config.environment.push(("ACCOUNT".into(), r#"{"user":"ann","door":"back"}"#.into()));
    lab.config.task_secrets = listed("PIN,ACCOUNT");
    lab.work("worker-1");
    let text = r#"case $1 in
        number) echo "{\"n\": $PIN, \"m\": 1}";;
        object) echo "$ACCOUNT";;
        esac"#;
    let execution = define(&lab, "leaky", Run::Shell(text.to_owned()), &["PIN", "ACCOUNT"]).await;
    let key = lab.submit("number", "{}", options(&execution)).await;
    let ended = lab.ended(&key).await;
    assert_eq!(ended.output(), serde_json::json!({"n": "[REDACTED]", "m": 1}));
    let log = String::from_utf8(lab.blob(&key, "r1-a1/logs/output.log").await.unwrap()).unwrap();
    assert!(log.contains(r#"{"n": [REDACTED], "m": 1}"#), "{log}");
    let key = lab.submit("object", "{}", options(&execution)).await;
    let ended = lab.ended(&key).await;
    let (category, error) = ended.failure();
    assert_eq!(category, "validation");
    assert!(error.contains("the result holds a secret that cannot be cut out of it"), "{error}");
    for event in &ended.events {
        assert!(!event.properties.as_str().contains("door"), "{event:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn se_07_what_a_command_was_given_is_taken_out_of_all_that_it_says_and_leaves() {
    let mut lab = Lab::idle();
    let secret = "open-sesame/1?";
    lab.config.environment.push(("DB_LOGIN".into(), secret.into()));
    lab.config.environment.push(("MODE".into(), "of-the-worker".into()));
    lab.config.task_secrets = listed("DB_LOGIN,MODE");
    lab.work("worker-1");
    let text = r#"encoded="$DB_LOGIN $(printf %s "$DB_LOGIN" | base64) $(printf %s "$DB_LOGIN" | od -An -tx1 | tr -d ' \n') open-sesame%2F1%3F"
        echo "log $encoded $MODE"; echo "words $DB_LOGIN" >&2
        mkdir -p "$TIDEMILL_OUTPUT_DIR/traces"; echo "trace $DB_LOGIN" > "$TIDEMILL_OUTPUT_DIR/traces/t.txt"
        echo "file $encoded" > "$TIDEMILL_OUTPUT_DIR/artifacts/a.txt"
        case $1 in
        last) echo "{\"said\":\"$DB_LOGIN\"}";;
        line) echo "@@tidemill {\"kind\":\"result\",\"output\":{\"said\":\"$DB_LOGIN\"}}";;
        file) echo "{\"said\":\"$DB_LOGIN\"}" > "$TIDEMILL_OUTPUT_DIR/artifacts/task-result.json";;
        fail) echo "TypeError: $DB_LOGIN" >&2; exit 1;;
        told) echo "@@tidemill {\"kind\":\"error\",\"message\":\"bad $DB_LOGIN\",\"status\":401}"; exit 1;;
        esac"#;
    let execution = define(&lab, "leaky", Run::Shell(text.to_owned()), &["DB_LOGIN", "MODE"]).await;
    for id in ["last", "line", "file", "fail", "told"] {
        let key = lab.submit(id, "{}", options(&execution)).await;
        let ended = lab.ended(&key).await;
        if ["fail", "told"].contains(&id) {
            assert!(ended.failure().1.contains("[REDACTED]"), "{:?}", ended.failure());
        } else {
            assert_eq!(ended.output(), serde_json::json!({"said": "[REDACTED]"}), "{id}");
        }
        for (path, expected) in [
            ("logs/output.log", "log [REDACTED] [REDACTED] [REDACTED] [REDACTED] stored\n"),
            ("traces/t.txt", "trace [REDACTED]\n"),
            ("artifacts/a.txt", "file [REDACTED] [REDACTED] [REDACTED] [REDACTED]\n"),
        ] {
            let blob = lab.blob(&key, &format!("r1-a1/{path}")).await.unwrap();
            let text = String::from_utf8(blob).unwrap();
            assert!(text.contains(expected), "{id} {path}: {text}");
        }
        let told = ended.events.iter().map(|event| event.properties.as_str().to_owned());
        for text in told.chain(lab.shown()) {
            assert!(!text.contains("open-sesame"), "{text}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fence_and_an_attempt_tell_tries_apart() {
    let lab = Lab::working();
    let text = r#"if [ "$TIDEMILL_ATTEMPT" = 1 ]; then echo ECONNRESET >&2; exit 1; fi
        echo "{\"attempt\":$TIDEMILL_ATTEMPT,\"fence\":$TIDEMILL_FENCE}""#;
    let ended = lab.run("req-1", &shell(text)).await;
    assert_eq!(ended.output(), serde_json::json!({"attempt": 2, "fence": 2}));
    let kinds =
        ["Task Pending", "Task Processing Started", "Task Processing Failed", "Task Processing Started"];
    assert_eq!(ended.types()[..4], kinds);
    assert_eq!(ended.first_of("Task Processing Failed")["errorCategory"], "network");
}

#[tokio::test(flavor = "multi_thread")]
async fn se_10_directories_stay_in_their_place_and_apart_by_tenant() {
    let mut lab = Lab::idle();
    lab.config.tenant = Some(tenant());
    lab.work("worker-1");
    let text = r#"echo "$TIDEMILL_ATTEMPT" > "$TIDEMILL_OUTPUT_DIR/artifacts/try"; echo hello
        mkdir "$TIDEMILL_OUTPUT_DIR/traces"; echo t > "$TIDEMILL_OUTPUT_DIR/traces/trace.json"
        [ "$TIDEMILL_ATTEMPT" = 2 ]"#;
    let long = "x".repeat(256);
    for id in ["req-1", &long] {
        let key = lab.submit(id, "{}", options(&shell(text))).await;
        assert_eq!(lab.ended(&key).await.types().last(), Some(&"Task Completed"));
        for (path, content) in [
            ("r1-a1/artifacts/try", "1\n"),
            ("r1-a2/artifacts/try", "2\n"),
            ("r1-a2/logs/output.log", "hello\n"),
            ("r1-a2/traces/trace.json", "t\n"),
        ] {
            assert_eq!(lab.blob(&key, path).await.as_deref(), Some(content.as_bytes()), "{id} {path}");
        }
    }
    // The layout shows the attempt that finished last.
    let read = |path: &str| {
        std::fs::read_to_string(lab.output(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
    };
    assert_eq!(read("req-1/artifacts/try"), "2\n");
    assert_eq!(read("req-1/logs/output.log"), "hello\n");
    let mode = std::fs::metadata(lab.output("req-1/input.json")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // Another tenant with the same id has a place of its own.
    let other = TenantId::new("other").unwrap();
    let request = tidemill_engine::engine::TaskRequest {
        tenant: other.clone(),
        app: tidemill_model::AppName::new("app").unwrap(),
        request: Some(tidemill_model::RequestId::new("req-1").unwrap()),
        name: TaskName::new("step").unwrap(),
        input: tidemill_model::Json::empty_object(),
        options: options(&shell("echo other > $TIDEMILL_OUTPUT_DIR/artifacts/try")),
        idempotency: None,
    };
    let request = lab.engine.submit_task(request).await.unwrap().request;
    let key = tidemill_engine::commit::TaskKey { tenant: other, request };
    lab.ended(&key).await.output();
    assert_eq!(read("@other/req-1/artifacts/try"), "other\n");
    assert_eq!(read("req-1/artifacts/try"), "2\n");
    lab.shut_down(std::time::Duration::from_secs(10)).await;
    let mut names: Vec<_> =
        std::fs::read_dir(lab.output("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names.len(), 4, "{names:?}");
    assert!(names.iter().all(|name| name.len() <= 255));
}

#[tokio::test(flavor = "multi_thread")]
async fn files_go_when_they_are_not_to_be_kept() {
    let mut lab = Lab::idle();
    lab.config.keep_files = false;
    lab.work("worker-1");
    let key =
        lab.submit("req-1", "{}", options(&shell("echo x > $TIDEMILL_OUTPUT_DIR/artifacts/a; echo y"))).await;
    lab.ended(&key).await.output();
    lab.shut_down(std::time::Duration::from_secs(10)).await;
    assert!(!lab.output("req-1").exists());
    assert_eq!(lab.blob(&key, "r1-a1/artifacts/a").await.as_deref(), Some(&b"x\n"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn children_run_as_another_user_in_a_directory_of_their_own() {
    if !rustix::process::getuid().is_root() {
        println!("left out: only root may start processes of other users");
        return;
    }
    let mut lab = Lab::idle();
    let mut config = crate::lab::spawner_config("run-as-test", 1);
    config.run_as = Some(tidemill_worker::spawner::RunAs { uid: 65_534, gid: 65_534 });
    lab.spawner = tidemill_worker::spawner::Spawner::start(config).unwrap();
    lab.work("worker-1");
    let text = "cat $INPUT_FILE > $TIDEMILL_OUTPUT_DIR/artifacts/copy
        echo \"{\\\"uid\\\":$(id -u),\\\"gid\\\":$(id -g),\\\"groups\\\":\\\"$(id -G)\\\"}\"";
    let key = lab.submit("req-1", r#"{"a":1}"#, options(&shell(text))).await;
    let expected = serde_json::json!({"uid": 65_534, "gid": 65_534, "groups": "65534"});
    assert_eq!(lab.ended(&key).await.output(), expected);
    assert_eq!(lab.blob(&key, "r1-a1/artifacts/copy").await.as_deref(), Some(&br#"{"a":1}"#[..]));
}
