//! API keys, from the first one on.

use serde_json::json;

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
