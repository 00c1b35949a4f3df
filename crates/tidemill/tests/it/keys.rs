//! API keys, from the first one on.

use serde_json::json;

use crate::full_disk::get;
use crate::sandbox::Sandbox;

#[test]
fn keys_are_made_offline_used_listed_and_revoked() {
    let sandbox = Sandbox::new();
    let refused = sandbox.run(&["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(refused.code, 2, "{refused:#?}");
    assert!(refused.words.contains("key"), "the reason is told: {refused:#?}");

    let made = sandbox.run(&["keys", "create", "--role", "admin", "--label", "first"]).ok();
    let token = made.out.trim().to_owned();
    assert!(token.starts_with("tm_"), "{made:#?}");
    assert!(!made.words.contains(&token), "the token is shown once");
    let server = sandbox.serve(&["--no-worker"], &[]);
    let url = server.url.clone();

    let without = sandbox.run(&["jobs", "list", "--server", &url]);
    assert_eq!(without.code, 1, "{without:#?}");
    assert!(without.words.contains("UNAUTHENTICATED"), "{without:#?}");
    assert!(without.words.contains("set TIDEMILL_API_KEY or give --key"), "{without:#?}");
    let with = sandbox
        .run_with(&["jobs", "list", "--json"], &[("TIDEMILL_SERVER", &url), ("TIDEMILL_API_KEY", &token)])
        .ok();
    assert_eq!(with.json(), json!({ "items": [] }));
    // The same without --server: the directory is held, and the server is found by its file.
    let found = sandbox.run_with(&["keys", "list", "--json"], &[("TIDEMILL_API_KEY", &token)]).ok().json();
    assert_eq!((&found["items"][0]["label"], &found["items"][0]["role"]), (&json!("first"), &json!("admin")));

    let reader = sandbox
        .run(&["keys", "create", "--role", "reader", "--server", &url, "--key", &token, "--json"])
        .ok()
        .json();
    let reader_token = reader["token"].as_str().unwrap();
    sandbox.write("job.yaml", "tasks:\n- {taskId: a, run: 'true'}\n");
    let submit = |token: &str| sandbox.run(&["submit", "job.yaml", "--server", &url, "--key", token]);
    let forbidden = submit(reader_token);
    assert_eq!(forbidden.code, 1, "{forbidden:#?}");
    assert_eq!(submit(&token).code, 0);
    let producer = sandbox
        .run(&["keys", "create", "--role", "producer", "--server", &url, "--key", &token, "--json"])
        .ok()
        .json();
    let brought = submit(producer["token"].as_str().unwrap());
    assert_eq!(brought.code, 1);
    assert!(
        brought.words.contains("INLINE_NOT_ALLOWED"),
        "a producer cannot bring a command along: {brought:#?}"
    );
    // A worker needs a key of its role.
    let worker = sandbox.run(&["worker", "--server", &url, "--key", reader_token]);
    assert_eq!(worker.code, 2, "{worker:#?}");
    assert!(worker.words.contains("refuses this worker"), "{worker:#?}");

    let id = reader["key"]["id"].as_str().unwrap();
    sandbox.run(&["keys", "revoke", id, "--server", &url, "--key", &token]).ok();
    let revoked = sandbox.run(&["jobs", "list", "--server", &url, "--key", reader_token]);
    assert_eq!(revoked.code, 1, "{revoked:#?}");
    server.stop().ok();
}

/// The export of a store with keys, and the token of one of them.
fn guarded() -> (String, String) {
    let origin = Sandbox::new();
    let token = origin.run(&["keys", "create", "--role", "admin"]).ok().out.trim().to_owned();
    origin.run(&["export", "--out", "export"]).ok();
    (origin.read("export"), token)
}

/// Asks a server of this sandbox for jobs, with a key if one is given; what it says.
fn ask(sandbox: &Sandbox, token: Option<&str>) -> (i32, String) {
    let server = sandbox.serve(&["--no-worker"], &[]);
    let mut arguments = vec!["jobs", "list", "--server", &server.url];
    arguments.extend(token.iter().flat_map(|token| ["--key", token]));
    let asked = sandbox.run(&arguments);
    server.stop().ok();
    (asked.code, asked.words)
}

#[test]
fn a_closed_store_runs_no_task() {
    let origin = Sandbox::new();
    origin.write("job.yaml", "tasks:\n- {taskId: a, run: touch ran}\n");
    origin.run(&["keys", "create", "--role", "admin"]).ok();
    let job = origin.run(&["submit", "job.yaml", "--data", ".tidemill"]).ok().out;
    origin.run(&["export", "--out", "export"]).ok();
    let sandbox = Sandbox::new();
    sandbox.write("export", &origin.read("export"));
    sandbox.run(&["import", "export"]).ok();
    let mut server = sandbox.serve(&[], &[]);
    server.process.wait_for("every request is refused and no task runs");
    let stopped = server.stop().ok();
    assert!(!sandbox.dir.join(".output").exists() && !sandbox.dir.join("ran").exists(), "{stopped:#?}");
    let token = sandbox.run(&["keys", "create", "--role", "admin"]).ok().out;
    let server = sandbox.serve(&[], &[]);
    sandbox.run_with(&["jobs", "watch", job.trim()], &[("TIDEMILL_API_KEY", token.trim())]).ok();
    server.stop().ok();
    assert!(sandbox.dir.join("ran").exists());
}

#[test]
fn an_imported_store_stays_closed_until_it_has_a_key() {
    let (export, token) = guarded();
    let sandbox = Sandbox::new();
    sandbox.write("export", &export);
    let imported = sandbox.run(&["import", "export"]).ok();
    let is_closed = |token: Option<&str>| {
        let (code, words) = ask(&sandbox, token);
        assert_eq!(code, 1, "{words}");
        for word in ["STORE_CLOSED", "tidemill keys create"] {
            assert!(words.contains(word), "{words}");
        }
    };
    is_closed(None);
    is_closed(Some(&token));
    // A balancer keeps requests away from it, and nobody restarts it: it is well.
    let server = sandbox.serve(&["--no-worker"], &[]);
    let (status, ready) = get(&server.url, "/readyz");
    let reason = ready["reasons"][0].as_str().unwrap_or_default();
    assert!(status == 503 && reason.starts_with("STORE_CLOSED: "), "{status} {ready}");
    assert!(reason.contains("tidemill keys create"), "{ready}");
    assert_eq!(get(&server.url, "/healthz").0, 200);
    let stopped = server.stop().ok();
    let warned = stopped.words.lines().any(|line| line.contains("closed: ") && line.contains(" warn "));
    assert!(warned, "{stopped:#?}");
    for word in ["stays closed", "the store had some", "tidemill keys create"] {
        assert!(imported.words.contains(word), "{imported:#?}");
    }
    let header = export.lines().next().unwrap();
    assert!(header.ends_with(r#""keys":true}"#) && !export.contains(&token[..15]), "{header}");
    // Nothing that is done to the directory opens it.
    sandbox.run(&["verify"]).ok();
    sandbox.run(&["rebuild"]).ok();
    is_closed(None);
    sandbox.run(&["export", "--out", "again"]).ok();
    assert_eq!(sandbox.read("again"), export);

    let own = sandbox.run(&["keys", "create", "--role", "admin", "--json"]).ok().json();
    let token = own["token"].as_str().unwrap();
    assert_eq!(ask(&sandbox, Some(token)).0, 0);
    let server = sandbox.serve(&["--no-worker"], &[]);
    assert_eq!(get(&server.url, "/readyz").0, 200);
    server.stop().ok();
    assert!(ask(&sandbox, None).1.contains("UNAUTHENTICATED"));
    // Neither does it open when its only key goes, here or in a copy.
    sandbox.run(&["keys", "revoke", own["key"]["id"].as_str().unwrap()]).ok();
    assert!(ask(&sandbox, None).1.contains("UNAUTHENTICATED"));
    sandbox.run(&["export", "--out", "revoked"]).ok();
    assert!(sandbox.read("revoked").starts_with(header));
    sandbox.run(&["verify"]).ok();
}

#[test]
fn an_export_that_does_not_tell_of_keys_makes_a_closed_store() {
    let (export, _) = guarded();
    for (told, is_closed) in [("", true), (r#","keys":false"#, false)] {
        let sandbox = Sandbox::new();
        sandbox.write("export", &export.replacen(r#","keys":true"#, told, 1));
        let imported = sandbox.run(&["import", "export"]).ok();
        let (code, words) = ask(&sandbox, None);
        assert_eq!((code == 1, words.contains("STORE_CLOSED")), (is_closed, is_closed), "{words}");
        assert_eq!(imported.words.contains("does not say whether"), is_closed, "{imported:#?}");
    }
}

/// After a first key for a reader, or a revoked last key of an admin, nobody is left who may change that.
#[test]
fn a_store_with_keys_and_no_admin_is_warned_of() {
    let sandbox = Sandbox::new();
    let create =
        |role: &str, more: &[&str]| sandbox.run(&[&["keys", "create", "--role", role], more].concat()).ok();
    let warning = "no admin has a key";
    assert!(create("reader", &[]).words.contains(warning));
    assert!(!create("reader", &["--json"]).words.contains(warning), "programs read what they read before");
    assert!(!create("admin", &[]).words.contains(warning));
    let second = create("admin", &["--json"]).json()["key"]["id"].as_str().unwrap().to_owned();
    assert!(!create("reader", &[]).words.contains(warning));
    let keys = sandbox.run(&["keys", "list", "--json"]).ok().json();
    let admins = keys["items"].as_array().unwrap().iter().filter(|key| key["role"] == "admin");
    let ids: Vec<_> = admins.map(|key| key["id"].as_str().unwrap().to_owned()).collect();
    let first = ids.iter().find(|id| **id != second).unwrap();
    assert!(!sandbox.run(&["keys", "revoke", &second]).ok().words.contains(warning));
    let last = sandbox.run(&["keys", "revoke", first]).ok();
    assert!(
        last.words.contains(warning) && last.words.contains("tidemill keys create --role admin"),
        "{last:#?}"
    );

    // A server without keys answers nobody without one afterwards.
    let sandbox = Sandbox::new();
    let server = sandbox.serve(&["--no-worker"], &[]);
    let made = sandbox.run(&["keys", "create", "--role", "worker"]).ok();
    assert!(made.words.contains(warning), "{made:#?}");
    server.stop().ok();
}
