//! What needs no server: completions, schemas, the doctor, help.

use serde_json::Value;

use crate::sandbox::Sandbox;

#[test]
fn completions_know_all_commands() {
    let sandbox = Sandbox::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = sandbox.run(&["completions", shell]).ok();
        for name in ["dead-letters", "add-tasks", "--concurrency"] {
            let name = if shell == "fish" { name.trim_start_matches('-') } else { name };
            assert!(ran.out.contains(name), "{shell} does not know {name}");
        }
        assert!(!ran.out.contains("spawner"), "what is hidden stays hidden");
    }
    assert_eq!(sandbox.run(&["completions", "none"]).code, 2);
}

/// The committed schemas are what editors use: they must be those of this build.
/// `tidemill schema job > docs/reference/job.schema.json` writes one.
#[test]
fn the_committed_schemas_are_those_of_this_build() {
    let sandbox = Sandbox::new();
    for of in ["job", "definition"] {
        let printed = sandbox.run(&["schema", of]).ok();
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference");
        let committed = std::fs::read_to_string(format!("{folder}/{of}.schema.json")).unwrap();
        assert_eq!(printed.out, committed, "of {of}");
        let schema: Value = printed.json();
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    }
}

#[test]
fn the_doctor_looks_and_says_what_to_do() {
    let sandbox = Sandbox::new();
    let healthy = sandbox.run(&["doctor", "--json"]).ok().json();
    let verdict = |report: &Value, name: &str| -> String {
        let checks = report["checks"].as_array().unwrap();
        let found = checks.iter().find(|check| check["check"] == name);
        found.unwrap_or_else(|| panic!("{name} was not checked"))["verdict"].as_str().unwrap().to_owned()
    };
    for name in
        ["settings", "data directory", "lock", "fsync", "open files", "clock", "kernel", "output directory"]
    {
        assert_ne!(verdict(&healthy, name), "FAIL", "{name}");
    }
    assert_eq!(verdict(&healthy, "claude"), "WARN", "there is none in the sandbox");
    assert!(!sandbox.dir.join(".tidemill").exists(), "looking makes nothing");

    let alerts = "alerts of failed jobs";
    let report =
        |environment: &[(&str, &str)]| sandbox.run_with(&["doctor", "--json"], environment).ok().json();
    assert_eq!(verdict(&healthy, alerts), "OK", "nobody asked for them");
    let on = ("ALERT_JOB_FAILED", "true");
    assert_eq!(verdict(&report(&[on]), alerts), "WARN", "nobody would hear of them");
    let bot = ("SLACK_BOT_TOKEN", "xoxb-1");
    assert_eq!(verdict(&report(&[on, bot]), alerts), "WARN", "a bot needs a channel");
    let names = ("ALERT_JOB_FAILED_NAMES", "nightly");
    assert_eq!(verdict(&report(&[names]), alerts), "WARN", "names alone switch nothing on");
    for targets in [
        &[on, bot, ("ALERT_CHANNEL", "#ops")][..],
        &[on, ("SLACK_WEBHOOK_URL", "https://hooks.slack.com/x")],
        &[on, ("ALERT_WEBHOOK_URL", "https://ops.example.com/x")],
        &[("ALERT_WEBHOOK_URL", "https://ops.example.com/x")],
    ] {
        assert_eq!(verdict(&report(targets), alerts), "OK", "{targets:?}");
    }

    let server = sandbox.serve(&[], &[]);
    let held = sandbox.run(&["doctor"]).ok();
    assert!(
        held.out.contains(&format!("held by process {}, the server {}", server.process.pid(), server.url)),
        "{held:#?}"
    );
    server.stop().ok();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(sandbox.dir.join(".tidemill"), open).unwrap();
    let warned = sandbox.run(&["doctor", "--data", ".tidemill"]).ok();
    assert!(warned.words.contains("data directory: chmod 700 .tidemill"), "{warned:#?}");
    let failed = sandbox.run(&["doctor"]);
    assert_eq!(failed.code, 1, "{failed:#?}");
    assert!(
        failed.out.contains(".tidemill has mode 755") && failed.out.contains("not looked at"),
        "{failed:#?}"
    );
    sandbox.write("file", "");
    let failed = sandbox.run(&["doctor", "--data", "file"]);
    assert_eq!(failed.code, 1, "{failed:#?}");
}

#[test]
fn help_names_exit_codes_and_commands() {
    let sandbox = Sandbox::new();
    let help = sandbox.run(&["--help"]).ok().out;
    for text in ["run", "serve", "worker", "dead-letters", "130  interrupted"] {
        assert!(help.contains(text), "{help}");
    }
    for command in
        ["run", "serve", "worker", "submit", "jobs", "tasks", "events", "definitions", "dead-letters", "keys"]
    {
        let help = sandbox.run(&[command, "--help"]).ok().out;
        assert!(help.contains("Exit codes:"), "{command}: {help}");
    }
    assert_eq!(sandbox.run(&["nonsense"]).code, 2);
}
