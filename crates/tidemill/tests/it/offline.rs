//! The offline commands, run as users run them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidemill::{Embedded, StoreOptions};
use tidemill_engine::clock::SystemClock;
use tidemill_engine::command::{Command as Ask, Prepared, Publish, PublishedEvent, SubmitTask};
use tidemill_engine::commit::NewTask;
use tidemill_model::{
    AppName, Context, Entity, EntityId, EntityType, EventType, Json, RequestId, TaskId, TaskName,
    TaskOptions, TaskSpec, TenantId,
};

/// A directory that goes with the test.
struct Fresh(PathBuf);

impl Fresh {
    fn new() -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name = format!("tidemill-cli-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }

    /// One with a store in it: some events and a task that waits.
    fn filled() -> Self {
        let fresh = Self::new();
        let backend = open(&fresh.0);
        for number in 0..300 {
            backend.execute_blocking(&[publish(number)]).unwrap().remove(0).unwrap();
        }
        backend.execute_blocking(&[submit()]).unwrap().remove(0).unwrap();
        fresh
    }
}

impl Drop for Fresh {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn open(dir: &Path) -> Embedded {
    Embedded::open(dir, StoreOptions::default(), Arc::new(SystemClock::start())).unwrap()
}

fn tenant() -> TenantId {
    TenantId::new("acme").unwrap()
}

fn publish(number: u32) -> Ask {
    let entity = Entity {
        kind: EntityType::new("STORE").unwrap(),
        id: EntityId::new(format!("s-{}", number % 9)).unwrap(),
    };
    Ask::Publish(Publish {
        tenant: tenant(),
        app: AppName::new("shop").unwrap(),
        context: Context { environment: "dev".into(), origin: "test".into(), worker_id: None },
        events: vec![PublishedEvent {
            entity,
            event_type: EventType::new("store.changed").unwrap(),
            timestamp: None,
            properties: Prepared {
                id: None,
                properties: Json::parse(format!("{{\"number\":{number}}}")).unwrap(),
            },
            ttl: None,
            workflow: None,
        }],
    })
}

fn submit() -> Ask {
    let spec = TaskSpec {
        task_id: TaskId::new("task").unwrap(),
        name: TaskName::new("noop").unwrap(),
        depends_on: Vec::new(),
        input: Json::empty_object(),
        options: TaskOptions::default(),
    };
    Ask::SubmitTask(SubmitTask {
        task: NewTask {
            tenant: tenant(),
            app: AppName::new("shop").unwrap(),
            request: RequestId::new("r-1").unwrap(),
            spec: Arc::new(spec),
        },
        once: Vec::new(),
    })
}

fn tidemill(arguments: &[&str], dir: &Fresh) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidemill"));
    command.args(arguments).arg("--data").arg(&dir.0);
    command
}

fn run(arguments: &[&str], dir: &Fresh) -> (i32, String, String) {
    said(tidemill(arguments, dir).output().unwrap())
}

fn said(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// Feeds `text` to an import.
fn import(dir: &Fresh, text: &str) -> (i32, String, String) {
    let path = std::env::temp_dir().join(format!("{}.ndjson", dir.0.file_name().unwrap().to_str().unwrap()));
    std::fs::write(&path, text).unwrap();
    let mut command = tidemill(&["import", "-"], dir);
    let output = command.stdin(std::fs::File::open(&path).unwrap()).output().unwrap();
    std::fs::remove_file(&path).unwrap();
    said(output)
}

#[test]
fn a_whole_store_verifies() {
    let dir = Fresh::filled();
    let (code, out, words) = run(&["verify"], &dir);
    assert_eq!((code, out.as_str()), (0, ""), "{words}");
    assert!(words.contains("checked 1 segment with 301 events, "), "{words}");
    assert!(words.ends_with("and 0 large values: all is as it should be\n"), "{words}");
    let (code, out, _) = run(&["verify", "--json"], &dir);
    let found: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &found["clean"], &found["events"]), (0, &true.into(), &301.into()));
}

#[test]
fn a_directory_in_use_or_without_data_is_refused() {
    let dir = Fresh::filled();
    let backend = open(&dir.0);
    let export = dir.0.join("none.ndjson");
    std::fs::write(&export, "").unwrap();
    for arguments in [&["verify"][..], &["rebuild"], &["export"], &["import", export.to_str().unwrap()]] {
        let (code, out, words) = run(arguments, &dir);
        assert_eq!((code, out.as_str()), (2, ""), "{arguments:?}");
        let expected = format!(
            "tidemill: the data directory {} is in use by process {}; use its server, or stop it first; this command \
             works offline only\n",
            dir.0.display(),
            std::process::id()
        );
        assert_eq!(words, expected, "{arguments:?}");
    }
    drop(backend);
    let empty = Fresh::new();
    let (code, _, words) = run(&["verify"], &empty);
    assert_eq!(code, 2);
    assert!(words.contains("there is no data in "), "{words}");
    assert!(!empty.0.exists(), "looking makes nothing");
    assert_eq!(run(&["verify", "--nonsense"], &dir).0, 2);
}

#[test]
fn damage_is_told_and_rows_are_made_again() {
    let dir = Fresh::filled();
    let segment = dir.0.join("log/0000000001.log");
    let whole = std::fs::read(&segment).unwrap();
    let mut damaged = whole.clone();
    damaged[300] ^= 1;
    std::fs::write(&segment, &damaged).unwrap();
    for json in [false, true] {
        let (code, out, words) = run(if json { &["verify", "--json"] } else { &["verify"] }, &dir);
        assert_eq!(code, 1, "{words}");
        assert!(out.contains("log/0000000001.log is damaged at byte "), "{out}");
    }
    for command in [&["rebuild"][..], &["export"], &["jobs", "list"], &["serve", "--listen", "127.0.0.1:0"]] {
        let (code, _, words) = run(command, &dir);
        assert_eq!(code, 1);
        assert!(words.contains("is damaged at byte "), "{words}");
        assert!(words.contains("`tidemill salvage --to DIR` copies what is whole"), "{words}");
    }
    let (_, out, _) = run(&["doctor"], &dir);
    assert!(out.contains("the log was not read, `tidemill verify` reads it"), "{out}");
    std::fs::write(&segment, &whole).unwrap();
    let (code, _, words) = run(&["rebuild"], &dir);
    assert_eq!(code, 0, "{words}");
    assert!(words.contains("replaying events") && words.contains("the rows were made again"), "{words}");
    assert!(words.contains("all is as it should be"), "{words}");

    std::fs::write(dir.0.join("log/FORMAT"), "tidemill-log 9\n").unwrap();
    let (code, _, words) = run(&["verify"], &dir);
    assert_eq!(code, 2);
    let newer = "the store is of a newer release: log/FORMAT has format version 9";
    assert!(words.contains(newer), "{words}");
    let (code, out, words) = run(&["doctor"], &dir);
    assert_eq!(code, 1, "{words}");
    assert!(out.lines().any(|line| line.starts_with("data directory ") && line.contains(newer)), "{out}");
}

#[test]
fn a_file_that_is_no_export_is_called_that() {
    let dir = Fresh::new();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/hello.yaml");
    let (code, _, words) = run(&["import", file], &dir);
    assert_eq!(code, 1, "{words}");
    assert!(words.contains("nothing was imported: this is no export of Tidemill"), "{words}");
}

#[test]
fn what_is_whole_of_a_damaged_directory_is_saved() {
    let dir = Fresh::filled();
    let (whole, again) = (Fresh::new(), Fresh::new());
    let (code, _, words) = run(&["salvage", "--to", dir.0.join("whole").to_str().unwrap()], &dir);
    assert!(code == 2 && words.contains("lies in the damaged directory, which is only read"), "{words}");
    let (code, out, words) = run(&["salvage", "--to", whole.0.to_str().unwrap()], &dir);
    assert_eq!((code, out.as_str()), (0, ""), "{words}");
    assert!(words.contains("saved 301 events, 0 jobs, 1 task"), "{words}");

    let segment = dir.0.join("log/0000000001.log");
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[5_000] ^= 1;
    std::fs::write(&segment, &bytes).unwrap();
    let saved = Fresh::new();
    let to = saved.0.to_str().unwrap();
    let (code, out, words) = run(&["salvage", "--json", "--to", to], &dir);
    assert_eq!(code, 3, "{words}");
    let told: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        (&told["whole"], &told["verified"], &told["events"]),
        (&false.into(), &true.into(), &300.into()),
        "{told}"
    );
    let lost = &told["lost"][0];
    assert_eq!(
        (&lost["file"], told["lost"].as_array().unwrap().len()),
        (&"log/0000000001.log".into(), 1),
        "{told}"
    );
    assert_eq!(lost["endEvent"].as_u64().unwrap() - lost["firstEvent"].as_u64().unwrap(), 1, "{told}");
    assert_eq!(told["touched"][0]["entityType"], "STORE", "{told}");
    assert_eq!(told["keys"], "closed", "{told}");
    assert!(told["keysWarning"].as_str().unwrap().contains("the store stays closed"), "{told}");
    assert!(words.contains("reading segments") && words.contains("what was whole"), "{words}");
    assert_eq!(std::fs::read(&segment).unwrap(), bytes);
    assert_eq!(run(&["verify"], &saved).0, 0);

    let (code, _, words) = run(&["salvage", "--to", to], &dir);
    assert_eq!(code, 2);
    assert!(words.contains("is not empty; name a new directory"), "{words}");
    let (code, out, _) = run(&["salvage", "--to", again.0.to_str().unwrap()], &dir);
    assert_eq!(code, 3);
    for line in [
        "log/0000000001.log is lost from byte ",
        ": there is no whole group here",
        "the history of STORE s-",
        "API keys may be lost, and none is left: the store stays closed",
    ] {
        assert!(out.contains(line), "{out}");
    }
    let (code, _, words) = run(&["verify"], &dir);
    assert!(code == 1 && words.contains("tidemill salvage"), "{words}");
}

#[test]
fn an_export_can_be_imported() {
    let (one, two, three) = (Fresh::filled(), Fresh::new(), Fresh::new());
    let (code, first, words) = run(&["export"], &one);
    assert_eq!(code, 0, "{words}");
    assert!(
        words.contains("exported 301 events, 0 jobs, 1 task, 1 message, 0 records and 0 large values"),
        "{words}"
    );
    let (code, out, words) = import(&two, &first);
    assert_eq!((code, out.as_str()), (0, ""), "{words}");
    assert!(words.contains("imported 301 events, 0 jobs, 1 task, 1 message"), "{words}");
    assert_eq!(run(&["verify"], &two).0, 0);
    let file = one.0.join("export.ndjson");
    let (code, out, _) = run(&["export", "--out", file.to_str().unwrap()], &two);
    assert_eq!((code, out.as_str()), (0, ""));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), first);

    let (code, _, words) = import(&two, &first);
    assert_eq!(code, 2);
    assert!(words.contains("the store is not empty: it holds 301 events"), "{words}");
    let (code, _, words) = import(&three, &first.replacen("\"tenantId\":\"acme\",", "", 3));
    assert_eq!(code, 1);
    assert!(words.contains("nothing was imported: line 2: event.tenantId is missing"), "{words}");
    assert!(!three.0.join("log").exists());
    let (code, _, words) = run(&["import", "/nowhere/at/all"], &three);
    assert_eq!(code, 2);
    assert!(words.contains("cannot read /nowhere/at/all: "), "{words}");
}

/// Values that an older version let in. They are not told to anybody as something else, and cost nothing beside them.
#[test]
fn what_readers_cannot_read_is_kept_and_shown_as_it_is() {
    let (one, two) = (Fresh::new(), Fresh::new());
    let job = one.0.with_extension("json");
    let result = r#"@@tidemill {"kind":"result","output":{"v":"MARK-OUT"}}"#;
    let tasks = serde_json::json!([
        { "taskId": "a", "run": ["echo", result], "input": { "v": "MARK-IN" } },
        { "taskId": "b", "run": ["true"], "dependsOn": ["a"] },
    ]);
    std::fs::write(&job, serde_json::json!({ "tasks": tasks }).to_string()).unwrap();
    let (code, out, words) = run(&["run", job.to_str().unwrap(), "--json"], &one);
    std::fs::remove_file(&job).unwrap();
    assert_eq!(code, 0, "{words}");
    let ran: serde_json::Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    let job = ran["jobId"].as_str().unwrap();
    let publish = ["events", "publish", "--type", "user.made", "--properties", r#"{"v":"MARK-EVENT"}"#];
    let (code, event, words) = run(&publish, &one);
    assert_eq!(code, 0, "{words}");
    let deep = format!("{}{}", "[".repeat(300), "]".repeat(300));
    let (code, export, words) = run(&["export"], &one);
    assert_eq!(code, 0, "{words}");
    let broken = export
        .replace(r#""MARK-OUT""#, "1e999")
        .replace(r#""MARK-IN""#, r#""\ud800""#)
        .replace(r#""MARK-EVENT""#, &deep);
    assert!(broken.contains("1e999") && broken.contains(r"\ud800") && broken.contains(&deep));
    let (code, _, words) = import(&two, &broken);
    assert_eq!(code, 0, "{words}");
    assert!(words.contains(" values are kept that not all readers of JSON can read"), "{words}");
    assert_eq!(run(&["verify"], &two).0, 0);
    assert_eq!(run(&["export"], &two).1, broken, "not a letter is changed");
    let task = format!("{job}_a");
    let all = export.lines().filter(|line| line.starts_with(r#"{"kind":"event""#)).count().to_string();
    for (command, shown) in [
        (&["events", "query"][..], &["1e999", r"\ud800", &deep][..]),
        (&["events", "query", "--json"], &["1e999", r"\ud800", &deep]),
        (&["events", "tail", "--after", "0", "--count", &all], &["1e999", r"\ud800", &deep]),
        (&["events", "tail", "--after", "0", "--count", &all, "--json"], &["1e999", r"\ud800", &deep]),
        (&["tasks", "list"], &[&task]),
        (&["tasks", "list", "--job", job], &[&task]),
        (&["tasks", "list", "--job", job, "--json"], &["1e999", &task]),
        (&["tasks", "get", &task], &["1e999", r"\ud800"]),
        (&["tasks", "get", &task, "--json"], &["1e999", r"\ud800"]),
        (&["tasks", "history", &task], &["1e999"]),
        (&["tasks", "history", &task, "--json"], &["1e999"]),
        (&["jobs", "list"], &[job]),
        (&["jobs", "get", job], &[job]),
        (&["jobs", "get", job, "--json"], &[job]),
        (&["scripts", "explain", "--event", event.trim()], &[]),
        (&["scripts", "explain", "--event", event.trim(), "--json"], &["user.made"]),
    ] {
        let (code, out, words) = run(command, &two);
        assert_eq!(code, 0, "{command:?}: {words}");
        for shown in shown {
            assert!(out.contains(shown), "{command:?} does not show {shown}: {out}");
        }
    }
}

#[test]
fn a_reader_that_has_enough_ends_an_export_in_silence() {
    let dir = Fresh::filled();
    let mut child =
        tidemill(&["export"], &dir).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let (code, _, words) = said(child.wait_with_output().unwrap());
    assert_eq!(code, 141);
    assert!(!words.contains("tidemill:") && !words.contains("exported"), "{words}");
}
