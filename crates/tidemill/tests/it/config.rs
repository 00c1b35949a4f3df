//! Settings: every name, where it comes from, and what stops a start.

use serde_json::{Value, json};

use crate::sandbox::Sandbox;

fn value<'a>(config: &'a Value, name: &str) -> &'a Value {
    &config[name]["value"]
}

/// CF-01 … CF-14: every name has its documented default.
#[test]
fn cf_every_name_is_there_with_its_default() {
    let sandbox = Sandbox::new();
    let config = sandbox.run(&["config", "--json"]).ok().json();
    for (name, default) in [
        ("AWS_REGION", json!("eu-west-1")),
        ("AWS_ACCESS_KEY_ID", json!(null)),
        ("AWS_SECRET_ACCESS_KEY", json!(null)),
        ("SQS_QUEUE_URL", json!(null)),
        ("MAX_MESSAGES", json!("1")),
        ("VISIBILITY_TIMEOUT", json!("30")),
        ("WAIT_TIME_SECONDS", json!("20")),
        ("VISIBILITY_EXTENSION_INTERVAL", json!("20000")),
        ("VISIBILITY_EXTENSION_AMOUNT", json!("30")),
        ("CLAUDE_CODE_OAUTH_TOKEN", json!(null)),
        ("CLAUDE_MODEL", json!("claude-opus-4-5")),
        ("CLAUDE_TIMEOUT", json!("200000")),
        ("TASK_TIMEOUT", json!("200000")),
        ("MAX_CONCURRENT_CLAUDE", json!("3")),
        ("MAX_CONCURRENT", json!("3")),
        ("DEFAULT_TIMEOUT", json!("120000")),
        ("DYNAMODB_EVENTS_TABLE_NAME", json!("dev-unifiedEvents")),
        ("EVENTBRIDGE_BUS_NAME", json!("default")),
        ("TENANT_ID", json!("default")),
        ("APP_NAME", json!("task-workflow")),
        ("MAX_MESSAGE_RETRIES", json!("3")),
        ("PROCESSING_TIMEOUT_MS", json!("20000")),
        ("S3_BUCKET", json!(null)),
        ("DELETE_FILES_AFTER_UPLOAD", json!("false")),
        ("NODE_ENV", json!("dev")),
        ("SCRIPT_WORKERS", json!("10")),
        ("SCRIPT_QUEUE_BUFFER", json!("1000")),
        ("SCRIPT_MAX_RETRIES", json!("3")),
        ("SCRIPT_TIMEOUT", json!("30000")),
        ("SCRIPT_MEMORY_MB", json!("128")),
        ("SCRIPT_PUBLISH_RATE", json!("1000")),
        ("WORKFLOW_SOURCES", json!("elephant.workflow")),
        ("WORKFLOW_FAMILIES", json!(null)),
        ("WORKFLOW_CATALOGUE", json!(null)),
        ("WORKFLOW_AUTO_RESUME", json!("false")),
        ("PARK_TIMEOUT", json!("7d")),
        ("TOKEN_KEY_FILE", json!(null)),
        ("WORKFLOW_TENANT_ID", json!(null)),
        ("SLACK_BOT_TOKEN", json!(null)),
        ("ALERT_CHANNEL", json!(null)),
        ("HEALTH_CHECK_ENABLED", json!("false")),
        ("HEALTH_CHECK_INTERVAL_MS", json!("300000")),
        ("HEALTH_OVERTIME_MS", json!("3600000")),
        ("HEALTH_PENDING_MS", json!("900000")),
        ("HEALTH_PARKED_MS", json!("86400000")),
        ("HEALTH_OUTBOUND_MS", json!("300000")),
        ("HEALTH_ALERT_WARNING", json!("false")),
        ("OUTPUT_DIR", json!(".output")),
        ("SHUTDOWN_GRACE_MS", json!("30000")),
        ("SWEEP_INTERVAL_MS", json!("60000")),
        ("TIDEMILL_DATA", json!(".tidemill")),
        ("TIDEMILL_SERVER", json!(null)),
    ] {
        assert_eq!(value(&config, name), &default, "{name}");
        assert_eq!(config[name]["origin"], "default", "{name}");
    }
}

/// The page of settings has a row for each, with its default.
#[test]
fn every_setting_has_a_row_on_its_page() {
    let page = include_str!("../../../../docs/reference/configuration.md");
    let (used, unused) = page.split_once("## Accepted and checked").unwrap();
    let config = Sandbox::new().run(&["config", "--json"]).ok().json();
    let settings = config.as_object().unwrap().iter();
    for (name, setting) in settings.filter(|(_, setting)| setting.get("aliasOf").is_none()) {
        let default = setting["value"].as_str().map(|value| format!("`{value}`")).unwrap_or_default();
        let part = if setting["used"] == true { used } else { unused };
        let row = part.lines().find(|line| line.starts_with(&format!("| `{name}`")));
        let row = row.unwrap_or_else(|| panic!("{name} has no row where it should be"));
        assert!(row.contains(&format!(" | {default}")), "{name} is {default} when nobody says: {row}");
        for alias in setting["aliases"].as_array().unwrap() {
            assert!(row.contains(alias.as_str().unwrap()), "{name} is also {alias}: {row}");
        }
    }
}

/// CF-05, CF-06: the documents' names are taken as ever, and it is shown which name a value came by.
#[test]
fn cf_05_the_documents_names_are_aliases() {
    let sandbox = Sandbox::new();
    sandbox.write("tidemill.yaml", "CLAUDE_TIMEOUT: 5m\n");
    let environment = [("MAX_CONCURRENT_CLAUDE", "7")];
    let config = sandbox.run_with(&["config", "--json"], &environment).ok().json();
    for (name, shown, origin, alias) in [
        ("MAX_CONCURRENT", "7", "environment", "MAX_CONCURRENT_CLAUDE"),
        ("TASK_TIMEOUT", "5m", "tidemill.yaml:1", "CLAUDE_TIMEOUT"),
    ] {
        let entry = &config[name];
        assert_eq!((&entry["value"], &entry["origin"]), (&json!(shown), &json!(origin)), "{name}");
        assert_eq!((&entry["name"], &entry["aliases"]), (&json!(alias), &json!([alias])), "{name}");
        assert_eq!((value(&config, alias), &config[alias]["aliasOf"]), (&json!(shown), &json!(name)));
        assert_eq!(entry.get("aliasOf"), None);
    }
    assert_eq!(config["TENANT_ID"]["name"], json!(null), "nobody gave it");
    let table = sandbox.run_with(&["config"], &environment).ok().out;
    let row = |name: &str| table.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(row("MAX_CONCURRENT ").contains("environment, as MAX_CONCURRENT_CLAUDE"), "{table}");
    assert!(row("TASK_TIMEOUT ").contains("tidemill.yaml:1, as CLAUDE_TIMEOUT"), "{table}");
    assert!(row("SCRIPT_WORKERS ").contains("; also SCRIPT_POOL_SIZE"), "{table}");
    // A flag goes before the environment, whatever the name.
    let flags = sandbox.run_with(&["worker", "--concurrency", "0"], &environment);
    assert!(flags.words.contains("MAX_CONCURRENT (--concurrency) must be"), "{flags:#?}");
    assert!(!flags.words.contains("differ"), "{flags:#?}");
}

/// HC-05: production is looked after when nobody says otherwise.
#[test]
fn hc_05_checks_are_on_in_prod_only() {
    let sandbox = Sandbox::new();
    for (environment, expected) in [
        (&[][..], ("false", "default")),
        (&[("NODE_ENV", "dev")][..], ("false", "default")),
        (&[("NODE_ENV", "prod")][..], ("true", "default in prod")),
        (&[("NODE_ENV", "production")][..], ("true", "default in prod")),
        (&[("NODE_ENV", "prod"), ("HEALTH_CHECK_ENABLED", "false")][..], ("false", "environment")),
        (&[("HEALTH_CHECK_ENABLED", "true")][..], ("true", "environment")),
    ] {
        let config = sandbox.run_with(&["config", "--json"], environment).ok().json();
        assert_eq!(value(&config, "HEALTH_CHECK_ENABLED"), expected.0, "{environment:?}");
        assert_eq!(config["HEALTH_CHECK_ENABLED"]["origin"], expected.1, "{environment:?}");
        assert_eq!(value(&config, "HEALTH_CHECK_INTERVAL_MS"), "300000");
    }
}

/// CF-13, CF-14: where each value comes from; CF-04: secrets are not shown.
#[test]
fn cf_origins_are_told_and_secrets_are_not() {
    let sandbox = Sandbox::new();
    sandbox.write(
        ".env",
        "TENANT_ID=from-env-file\nAPP_NAME=from-env-file\nCLAUDE_CODE_OAUTH_TOKEN=very-secret-token\n",
    );
    sandbox.write("tidemill.yaml", "ALERT_CHANNEL: '#all'\nHEALTH_CHECK_ENABLED: false\n");
    sandbox.write("tidemill.prod.yaml", "HEALTH_CHECK_ENABLED: true\n");
    sandbox.write("other.yaml", "ALERT_CHANNEL: other\n");
    let environment = [
        ("APP_NAME", "real"),
        ("NODE_ENV", "prod"),
        ("EVENTS_TABLE", "mine"),
        ("TIDEMILL_API_KEY", "tm_secret"),
    ];
    let ran = sandbox.run_with(&["config", "--json", "--data", "d"], &environment).ok();
    let config = ran.json();
    for (name, shown, origin) in [
        ("TENANT_ID", "from-env-file", ".env:1"),
        ("APP_NAME", "real", "environment"),
        ("ALERT_CHANNEL", "#all", "tidemill.yaml:1"),
        ("HEALTH_CHECK_ENABLED", "true", "tidemill.prod.yaml:1"),
        ("TIDEMILL_DATA", "d", "--data"),
        ("DYNAMODB_EVENTS_TABLE_NAME", "mine", "environment"),
        ("CLAUDE_CODE_OAUTH_TOKEN", "[REDACTED]", ".env:3"),
        ("TIDEMILL_API_KEY", "[REDACTED]", "environment"),
    ] {
        assert_eq!(
            (value(&config, name), &config[name]["origin"]),
            (&json!(shown), &json!(origin)),
            "{name}"
        );
    }
    let table = sandbox.run_with(&["config"], &environment).ok();
    for secret in ["very-secret-token", "tm_secret"] {
        assert!(!ran.out.contains(secret) && !table.out.contains(secret));
    }
    let named = sandbox.run(&["--config", "other.yaml", "config", "--json"]).ok().json();
    assert_eq!(named["ALERT_CHANNEL"]["origin"], "other.yaml:1");
}

/// CF-15, CF-09, CF-03: what is wrong or contradictory stops every start with exit code 2 and names the variable.
#[test]
fn cf_15_wrong_values_stop_the_start() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", "tasks:\n- {taskId: a, run: 'true'}\n");
    for (environment, expected) in [
        (
            ("VISIBILITY_EXTENSION_INTERVAL", "40000"),
            "VISIBILITY_EXTENSION_INTERVAL (40000 ms, environment) must be shorter",
        ),
        (
            ("MAX_MESSAGES", "11"),
            "MAX_MESSAGES (environment) must be a whole number from 1 to 10, not \"11\"",
        ),
        (("TENANT_ID", "no spaces"), "TENANT_ID (environment) must be"),
        (("ALLOW_UNDEFINED_TASKS", "true"), "ALLOW_UNDEFINED_TASKS (environment) must be false"),
    ] {
        for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["run", "job.yaml"], &["config"]] {
            let ran = sandbox.run_with(arguments, &[environment]);
            assert_eq!(ran.code, 2, "{arguments:?}: {ran:#?}");
            assert!(ran.words.starts_with(&format!("tidemill: {expected}")), "{ran:#?}");
        }
    }
    let both = [("SQS_QUEUE_URL", "http://a/q"), ("TASK_QUEUE_URL", "http://b/q")];
    let ran = sandbox.run_with(&["config"], &both);
    assert_eq!(ran.code, 2);
    assert!(
        ran.words.contains(
            "SQS_QUEUE_URL (environment) and TASK_QUEUE_URL (environment) mean the same and differ"
        ),
        "{ran:#?}"
    );
    assert!(!sandbox.dir.join(".tidemill").exists(), "nothing was started");
    let warned = sandbox.run_with(&["config"], &[("PROCESSING_TIMEOUT_MS", "5000")]).ok();
    assert_eq!(warned.words, "tidemill: PROCESSING_TIMEOUT_MS (environment) has no effect\n");
    let flag = sandbox.run(&["run", "job.yaml", "--concurrency", "0"]);
    assert_eq!(flag.code, 2);
    assert!(
        flag.words.contains("MAX_CONCURRENT (--concurrency) must be a whole number from 1 to 1024"),
        "{flag:#?}"
    );
}

/// CF-08: one attempt, then a dead letter. CF-07, CF-11: tenant, application and stage are in the events.
#[test]
fn cf_08_settings_reach_the_engine() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", "tasks:\n- {taskId: a, run: exit 1}\n");
    let environment =
        [("MAX_MESSAGE_RETRIES", "1"), ("NODE_ENV", "stage-1"), ("APP_NAME", "shop"), ("TENANT_ID", "acme")];
    let ran = sandbox.run_with(&["run", "job.yaml", "--json"], &environment);
    assert_eq!((ran.code, &ran.json()["tasks"]["a"]["attempt"]), (1, &json!(1)), "{ran:#?}");
    let letters = sandbox.run_with(&["dead-letters", "list", "--json"], &environment).ok().json();
    assert_eq!(letters["items"].as_array().unwrap().len(), 1);
    let events =
        sandbox.run_with(&["events", "query", "--type", "Task Failed", "--json"], &environment).ok().json();
    let event = &events["items"][0];
    assert_eq!((&event["context"]["environment"], &event["tenantId"]), (&json!("stage-1"), &json!("acme")));
    assert!(event["GSI2PK"].as_str().unwrap().contains("APP#shop"), "{event}");
    let id = letters["items"][0]["id"].as_str().unwrap();
    let shown = sandbox.run_with(&["dead-letters", "show", id], &environment).ok();
    assert_eq!(shown.json()["state"], "open");
    sandbox.run_with(&["dead-letters", "discard", id], &environment).ok();
    let open =
        sandbox.run_with(&["dead-letters", "list", "--state", "open", "--json"], &environment).ok().json();
    assert_eq!(open["items"], json!([]));
}

/// CF-05: a task's time is over.
#[test]
fn cf_05_the_default_timeout_is_the_configured_one() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", "tasks:\n- {taskId: a, run: sleep 100}\n");
    for name in ["CLAUDE_TIMEOUT", "TASK_TIMEOUT"] {
        let ran = sandbox.run_with(&["run", "job.yaml"], &[(name, "1s")]);
        assert_eq!(ran.code, 1, "{ran:#?}");
        assert!(ran.words.contains("a timed out after"), "{ran:#?}");
    }
}

/// A program without AWS says so, and how to get one that has it.
#[cfg(not(feature = "aws"))]
#[test]
fn a_program_that_was_built_without_aws_says_so() {
    let sandbox = Sandbox::new();
    for arguments in [
        &["serve", "--backend", "aws"][..],
        &["worker", "--backend", "aws"],
        &["jobs", "list", "--backend", "aws"],
        &["doctor", "--backend", "aws"],
        &["aws", "deploy", "--stage", "dev"],
    ] {
        let ran = sandbox.run(arguments);
        assert_eq!(ran.code, 2, "{arguments:?}: {ran:#?}");
        assert!(ran.words.contains("built without"), "{arguments:?}: {ran:#?}");
        assert!(ran.words.contains("cargo build --release -p tidemill --features aws"), "{ran:#?}");
    }
}

/// What belongs to the installation is given to no task, whatever the list says.
#[test]
fn own_settings_are_never_listed_for_tasks() {
    let sandbox = Sandbox::new();
    for own in [
        "SLACK_BOT_TOKEN",
        "WEBHOOK_SIGNING_KEY",
        "TOKEN_KEY",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
        "TIDEMILL_API_KEY",
        "acme:ANTHROPIC_API_KEY",
        "EVENTS_TABLE",
    ] {
        let list = format!("DB_URL,{own}");
        for arguments in [&["config"][..], &["serve", "--listen", "127.0.0.1:0"]] {
            let ran = sandbox.run_with(arguments, &[("TASK_SECRETS", &list)]);
            assert_eq!(ran.code, 2, "{own}: {ran:#?}");
            let name = own.trim_start_matches("acme:");
            assert!(ran.words.contains("TASK_SECRETS (environment) must be"), "{ran:#?}");
            assert!(
                ran.words.contains(&format!("names {name}, which belongs to this installation")),
                "{ran:#?}"
            );
        }
    }
    let given = [("TASK_SECRETS", "DB_URL,acme:STRIPE_KEY"), ("DB_URL", "x")];
    let config = sandbox.run_with(&["config", "--json"], &given).ok().json();
    assert_eq!(value(&config, "TASK_SECRETS"), "DB_URL,acme:STRIPE_KEY");
    let doctor = sandbox.run_with(&["doctor"], &given);
    assert!(doctor.out.contains("listed and not set here: STRIPE_KEY"), "{doctor:#?}");
    // Without a list nothing is given, and a server that runs tasks says so at once.
    sandbox.write("ask.yaml", "name: ask\ncommand: 'true'\nsecrets: [DB_URL]\n");
    let server = sandbox.serve(&[], &[("DB_URL", "x")]);
    let refused = sandbox.run(&["definitions", "create", "ask.yaml"]);
    assert_ne!(refused.code, 0, "{refused:#?}");
    assert!(refused.words.contains("ask.yaml:3") && refused.words.contains("TASK_SECRETS"), "{refused:#?}");
    server.stop().ok();
}

/// A directory that somebody else wrote must not get our keys, nor have its programs run.
#[test]
fn files_of_the_working_directory_get_no_key_from_elsewhere_and_run_nothing() {
    let sandbox = Sandbox::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let evil = format!("http://{}", listener.local_addr().unwrap());
    for (file, text) in [
        (".env", format!("TIDEMILL_SERVER={evil}\n")),
        ("tidemill.yaml", format!("TIDEMILL_SERVER: {evil}\n")),
    ] {
        sandbox.write(file, &text);
        let ran = sandbox.run_with(&["jobs", "list"], &[("TIDEMILL_API_KEY", "tm_secret")]);
        assert_eq!(ran.code, 2, "{ran:#?}");
        assert!(
            ran.words.contains(&format!("TIDEMILL_SERVER ({file}:1) would be sent TIDEMILL_API_KEY")),
            "{ran:#?}"
        );
        assert!(!ran.words.contains("tm_secret"), "{ran:#?}");
        std::fs::remove_file(sandbox.dir.join(file)).unwrap();
    }
    assert_eq!(listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "nobody called");

    let program = sandbox.dir.join("claude");
    sandbox.write("claude", "#!/bin/sh\ntouch \"$(dirname \"$0\")/ran\"\necho 1.0.0\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&program, mode).unwrap();
    sandbox.write(".env", &format!("CLAUDE_BIN={}\n", program.display()));
    let doctor = sandbox.run(&["doctor"]);
    assert!(doctor.out.contains("(.env:1) is not tried"), "{doctor:#?}");
    assert!(!sandbox.dir.join("ran").exists(), "doctor runs no program that a found file names");
    sandbox.write(".env", "CLAUDE_BIN=./claude\n");
    let doctor = sandbox.run(&["doctor"]);
    assert_eq!(doctor.code, 2, "{doctor:#?}");
    assert!(doctor.words.contains("CLAUDE_BIN (.env:1) must be an absolute path"), "{doctor:#?}");
    assert!(!sandbox.dir.join("ran").exists());
    std::fs::remove_file(sandbox.dir.join(".env")).unwrap();
    let doctor = sandbox.run_with(&["doctor"], &[("CLAUDE_BIN", program.to_str().unwrap())]);
    assert!(sandbox.dir.join("ran").exists(), "the environment is the user's own: {doctor:#?}");
}

/// What is in a folder that was copied has other modes than a store, as a clone has: nothing of it runs.
#[test]
fn a_data_directory_that_came_with_a_folder_is_not_opened() {
    use std::os::unix::fs::PermissionsExt as _;
    let sandbox = Sandbox::new();
    sandbox.write("evil.yaml", "tasks:\n- {taskId: a, run: touch ran}\n");
    sandbox.write("own.yaml", "tasks:\n- {taskId: a, run: 'true'}\n");
    sandbox.run(&["submit", "evil.yaml", "--data", ".tidemill"]).ok();
    sandbox.run(&["export", "--out", "export"]).ok();
    let data = sandbox.dir.join(".tidemill");
    let set = |path: &std::path::Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    for name in ["LOCK", "log", "."] {
        let mode = data.join(name).metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, if name == "LOCK" { 0o600 } else { 0o700 }, "{name}");
    }
    let file = std::fs::read_dir(data.join("log")).unwrap().next().unwrap().unwrap().path();
    let file_name = format!(".tidemill/log/{}", file.file_name().unwrap().to_str().unwrap());
    for (path, shown, open, closed) in [
        (data.clone(), ".tidemill", 0o755, 0o700),
        (data.clone(), ".tidemill", 0o710, 0o700),
        (data.join("log"), ".tidemill/log", 0o755, 0o700),
        (file, file_name.as_str(), 0o644, 0o600),
    ] {
        set(&path, open);
        for arguments in [
            &["run", "own.yaml"][..],
            &["serve", "--listen", "127.0.0.1:0"],
            &["submit", "own.yaml"],
            &["jobs", "list"],
            &["keys", "create", "--role", "admin"],
            &["verify"],
            &["rebuild"],
            &["export", "--out", "other"],
            &["import", "export"],
            &["salvage", "--to", "rescued"],
        ] {
            let ran = sandbox.run(arguments);
            assert_eq!(ran.code, 2, "{shown} {open:o} {arguments:?}: {ran:#?}");
            let words = format!(
                "{shown} has mode {open:o}, which lets others in: the data directory .tidemill was not named"
            );
            assert!(ran.words.contains(&words), "{arguments:?}: {ran:#?}");
            assert!(ran.words.contains("could run its tasks as you"), "{ran:#?}");
            assert!(ran.words.contains("`chmod -R go= .tidemill`"), "{ran:#?}");
            assert!(ran.words.contains("`--data .tidemill`"), "{ran:#?}");
        }
        // Files that nobody named name nothing either.
        for (file, text) in
            [(".env", "TIDEMILL_DATA=.tidemill"), ("tidemill.yaml", "TIDEMILL_DATA: .tidemill")]
        {
            sandbox.write(file, text);
            assert_eq!(sandbox.run(&["jobs", "list"]).code, 2, "{file}");
            std::fs::remove_file(sandbox.dir.join(file)).unwrap();
        }
        sandbox.write("named.yaml", "TIDEMILL_DATA: .tidemill");
        sandbox.run(&["jobs", "list", "--data", ".tidemill"]).ok();
        sandbox.run_with(&["jobs", "list"], &[("TIDEMILL_DATA", ".tidemill")]).ok();
        sandbox.run(&["--config", "named.yaml", "jobs", "list"]).ok();
        assert!(!sandbox.dir.join("ran").exists());
        set(&path, closed);
        sandbox.run(&["jobs", "list"]).ok();
    }
    std::fs::rename(&data, sandbox.dir.join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", &data).unwrap();
    let linked = sandbox.run(&["run", "own.yaml"]);
    assert_eq!(linked.code, 2, "{linked:#?}");
    assert!(linked.words.contains(".tidemill is a symbolic link"), "{linked:#?}");
    assert!(!sandbox.dir.join("ran").exists());
}

/// A store is closed to others whatever the umask, so that it is opened again without being named.
#[test]
fn a_store_that_was_made_under_an_open_umask_is_opened_again() {
    use std::os::unix::fs::PermissionsExt as _;
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", "tasks:\n- {taskId: a, run: 'true'}\n");
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "umask 0; exec \"$@\"", "sh"]).arg(env!("CARGO_BIN_EXE_tidemill"));
    let ran = sandbox.in_its_place(shell).args(["run", "job.yaml"]).output().unwrap();
    assert!(ran.status.success(), "{ran:?}");
    sandbox.run(&["jobs", "list"]).ok();
    let server = sandbox.serve(&[], &[]);
    let mode = sandbox.dir.join(".tidemill/server.json").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    sandbox.run(&["jobs", "list"]).ok();
    server.stop().ok();
}

/// `server.json` sends commands to this machine only, and keys only to those whom the user trusts anyway.
#[test]
fn the_address_in_a_data_directory_gets_a_key_only_on_this_machine_and_of_this_user() {
    let sandbox = Sandbox::new();
    let server = sandbox.serve(&[], &[]);
    let key = [("TIDEMILL_API_KEY", "tm_secret")];
    let file = sandbox.dir.join(".tidemill/server.json");
    let right = sandbox.read(".tidemill/server.json");
    for url in
        ["http://192.0.2.1:1", "https://127.0.0.1:1", "http://localhost:1", "http://127.0.0.1:1@192.0.2.1:1"]
    {
        let evil = right.replace(&server.url, url);
        assert_ne!(evil, right);
        std::fs::write(&file, evil).unwrap();
        let ran = sandbox.run_with(&["jobs", "list"], &key);
        assert_eq!(ran.code, 2, "{url}: {ran:#?}");
        assert!(ran.words.contains("which is no server on a loopback address"), "{url}: {ran:#?}");
        assert!(ran.words.contains("--server"), "{ran:#?}");
        sandbox.write("job.yaml", "tasks:\n- {taskId: a, run: 'true'}\n");
        for arguments in [&["run", "job.yaml"][..], &["doctor"]] {
            let ran = sandbox.run_with(arguments, &key);
            assert!(!ran.words.contains(url) && !ran.out.contains(url), "{url}: {ran:#?}");
        }
    }
    std::fs::write(&file, &right).unwrap();
    sandbox.run(&["jobs", "list"]).ok();
    // Only root can give a file away.
    if rustix::process::geteuid().is_root() {
        for name in ["server.json", "LOCK"] {
            let path = sandbox.dir.join(".tidemill").join(name);
            std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
            let ran = sandbox.run_with(&["jobs", "list"], &key);
            assert_eq!(ran.code, 2, "{ran:#?}");
            assert!(
                ran.words.contains(&format!("{name} belongs to user 65534, who gets no key")),
                "{ran:#?}"
            );
            sandbox.run(&["jobs", "list"]).ok();
            std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        }
        let given_away = sandbox.dir.join(".tidemill/log");
        std::os::unix::fs::chown(&given_away, Some(65_534), None).unwrap();
        let ran = sandbox.run(&["jobs", "list"]);
        assert_eq!(ran.code, 2, "{ran:#?}");
        assert!(
            ran.words.contains(".tidemill/log belongs to user 65534, and this runs as user 0"),
            "{ran:#?}"
        );
        std::os::unix::fs::chown(&given_away, Some(0), None).unwrap();
    }
    server.stop().ok();
}
