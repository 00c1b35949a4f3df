use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::*;

struct Dir(PathBuf);

impl Dir {
    fn with(files: &[(&str, &str)]) -> Self {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let name =
            format!("tidemill-config-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).unwrap();
        for (name, text) in files {
            std::fs::write(path.join(name), text).unwrap();
        }
        Self(path)
    }

    fn resolve(
        &self,
        environment: &[(&str, &str)],
        flags: &[(&'static str, &str)],
    ) -> Result<Resolved, String> {
        let environment = environment.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let flags = flags.iter().map(|(name, value)| (*name, Source::new(*value, Origin::Flag("--flag"))));
        let sources = Sources::read(&self.0, environment, None, flags.collect());
        sources.and_then(|sources| sources.resolve()).map_err(|error| error.to_string())
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn origin(resolved: &Resolved, name: &str) -> String {
    origin_of(&resolved.shown, name)
}

#[test]
fn defaults_work() {
    let resolved = Dir::with(&[]).resolve(&[], &[]).unwrap();
    let values = &resolved.values;
    assert_eq!((values.tenant.as_str(), values.app.as_str()), ("default", "task-workflow"));
    assert_eq!((values.slots, values.attempts_max, values.claim_max), (3, 3, 1));
    assert_eq!(values.timeout, Duration::from_secs(200));
    assert_eq!(values.idle_timeout, None);
    assert_eq!((values.lease_millis(), values.policy().visibility_millis), (45_000, 30_000));
    assert_eq!(resolved.warnings, Vec::<String>::new());
}

/// CF-13: the file of the environment is honoured, and the real environment wins.
#[test]
fn flags_go_before_environment_before_env_file_before_files() {
    let dir = Dir::with(&[
        (".env", "MAX_CONCURRENT=5\nAPP_NAME=dotenv\nTENANT_ID=t-env\nOTHER=x\n"),
        (
            "tidemill.yaml",
            "# all\nMAX_CONCURRENT: 4\nSWEEP_INTERVAL_MS: 5s\nTASK_TIMEOUT: 1m\nALERT_CHANNEL: all\n",
        ),
        ("tidemill.prod.yaml", "TASK_TIMEOUT: 2m\nHEALTH_CHECK_ENABLED: true\n"),
    ]);
    let resolved = dir
        .resolve(
            &[("TENANT_ID", "t-real"), ("NODE_ENV", "prod"), ("S3_BUCKET", "")],
            &[("APP_NAME", "flagged")],
        )
        .unwrap();
    let values = &resolved.values;
    assert_eq!((values.slots, values.app.as_str(), values.tenant.as_str()), (5, "flagged", "t-real"));
    assert_eq!((values.sweep_every, values.timeout), (Duration::from_secs(5), Duration::from_secs(120)));
    for (name, expected) in [
        ("MAX_CONCURRENT", ".env:1"),
        ("APP_NAME", "--flag"),
        ("TENANT_ID", "environment"),
        ("SWEEP_INTERVAL_MS", "tidemill.yaml:3"),
        ("TASK_TIMEOUT", "tidemill.prod.yaml:1"),
        ("HEALTH_CHECK_ENABLED", "tidemill.prod.yaml:2"),
        ("ALERT_CHANNEL", "tidemill.yaml:5"),
        ("S3_BUCKET", "default"),
    ] {
        assert_eq!(origin(&resolved, name), expected, "{name}");
    }
    assert_eq!(resolved.environment["OTHER"], "x");
    assert_eq!(resolved.environment["TENANT_ID"], "t-real");
}

/// CF-05: the documents' names mean the same, wherever they are given. What counts is first the place, then the name.
#[test]
fn other_names_mean_the_same_and_count_by_their_place() {
    let (env, yaml, prod) = (".env", "tidemill.yaml", "tidemill.prod.yaml");
    for (files, environment, flags, slots, place) in [
        (&[][..], &[("MAX_CONCURRENT", "5")][..], &[][..], 5, "environment"),
        (&[], &[("MAX_CONCURRENT_CLAUDE", "5")], &[], 5, "environment, as MAX_CONCURRENT_CLAUDE"),
        (&[(env, "A=1\nMAX_CONCURRENT_CLAUDE=5")], &[], &[], 5, ".env:2, as MAX_CONCURRENT_CLAUDE"),
        (&[(yaml, "MAX_CONCURRENT_CLAUDE: 5")], &[], &[], 5, "tidemill.yaml:1, as MAX_CONCURRENT_CLAUDE"),
        // An empty value is none.
        (
            &[],
            &[("MAX_CONCURRENT", ""), ("MAX_CONCURRENT_CLAUDE", "5")],
            &[],
            5,
            "environment, as MAX_CONCURRENT_CLAUDE",
        ),
        // The same twice is no contradiction.
        (&[], &[("MAX_CONCURRENT", "5"), ("MAX_CONCURRENT_CLAUDE", "5")], &[], 5, "environment"),
        // The place goes before the name.
        (&[], &[("MAX_CONCURRENT_CLAUDE", "5")], &[("MAX_CONCURRENT", "2")], 2, "--flag"),
        (
            &[(env, "MAX_CONCURRENT=2")],
            &[("MAX_CONCURRENT_CLAUDE", "5")],
            &[],
            5,
            "environment, as MAX_CONCURRENT_CLAUDE",
        ),
        (&[(env, "MAX_CONCURRENT_CLAUDE=2")], &[("MAX_CONCURRENT", "5")], &[], 5, "environment"),
        (
            &[(env, "MAX_CONCURRENT_CLAUDE=5"), (yaml, "MAX_CONCURRENT: 2")],
            &[],
            &[],
            5,
            ".env:1, as MAX_CONCURRENT_CLAUDE",
        ),
        (
            &[(prod, "MAX_CONCURRENT_CLAUDE: 5"), (yaml, "MAX_CONCURRENT: 2")],
            &[("NODE_ENV", "prod")],
            &[],
            5,
            "tidemill.prod.yaml:1, as MAX_CONCURRENT_CLAUDE",
        ),
    ] {
        let resolved = Dir::with(files).resolve(environment, flags).unwrap();
        assert_eq!(resolved.values.slots, slots, "{files:?} {environment:?}");
        assert_eq!(origin(&resolved, "MAX_CONCURRENT"), place, "{files:?} {environment:?}");
        assert_eq!(resolved.warnings, Vec::<String>::new());
    }
    // Units and bounds are those of the setting.
    for name in ["TASK_TIMEOUT", "CLAUDE_TIMEOUT"] {
        for text in ["90000", "90s"] {
            let resolved = Dir::with(&[]).resolve(&[(name, text)], &[]).unwrap();
            assert_eq!(resolved.values.timeout, Duration::from_secs(90), "{name}={text}");
        }
    }
    // What two names say is compared, not how.
    let same = Dir::with(&[]).resolve(&[("TASK_TIMEOUT", "5s"), ("CLAUDE_TIMEOUT", "5000")], &[]).unwrap();
    assert_eq!(same.values.timeout, Duration::from_secs(5));
    for (files, environment, expected) in [
        (
            &[][..],
            &[("CLAUDE_TIMEOUT", "999")][..],
            "TASK_TIMEOUT (environment, as CLAUDE_TIMEOUT) must be milliseconds from 1000 to 604800000, or a time such as \
             30s, 5m or 2h, not \"999\"",
        ),
        (
            &[],
            &[("TASK_TIMEOUT", "5s"), ("CLAUDE_TIMEOUT", "6s")],
            "TASK_TIMEOUT (environment) and CLAUDE_TIMEOUT (environment) mean the same and differ; give one of them",
        ),
        (
            &[(yaml, "CLAUDE_TIMEOUT: 5s\nTASK_TIMEOUT: 6s")],
            &[],
            "TASK_TIMEOUT (tidemill.yaml:2) and CLAUDE_TIMEOUT (tidemill.yaml:1) mean the same and differ; give one of them",
        ),
        (
            &[(yaml, "TASK_TIMOUT: 5s")],
            &[],
            "tidemill.yaml:1:1: TASK_TIMOUT: there is no setting of this name; did you mean TASK_TIMEOUT?",
        ),
        (
            &[(yaml, "CLAUDE_TIMOUT: 5s")],
            &[],
            "tidemill.yaml:1:1: CLAUDE_TIMOUT: there is no setting of this name; did you mean CLAUDE_TIMEOUT?",
        ),
    ] {
        assert_eq!(Dir::with(files).resolve(environment, &[]).unwrap_err(), expected);
    }
}

/// CF-15, H-098, H-179: what is wrong stops the start and is named.
#[test]
fn wrong_and_contradictory_values_are_named() {
    let dir = Dir::with(&[]);
    for (environment, expected) in [
        (
            &[("MAX_MESSAGES", "0"), ("TENANT_ID", "a b")][..],
            "TENANT_ID (environment) must be 1 to 256 letters, digits, _ and -, not \"a b\"\n\
             MAX_MESSAGES (environment) must be a whole number from 1 to 10, not \"0\"",
        ),
        (
            &[("MAX_MESSAGES", "11")],
            "MAX_MESSAGES (environment) must be a whole number from 1 to 10, not \"11\"",
        ),
        (
            &[("VISIBILITY_EXTENSION_INTERVAL", "40000")],
            "VISIBILITY_EXTENSION_INTERVAL (40000 ms, environment) must be shorter than VISIBILITY_EXTENSION_AMOUNT \
             (30 s, default): a heartbeat must come before what it extends has ended",
        ),
        (
            &[("VISIBILITY_EXTENSION_INTERVAL", "23s")],
            "VISIBILITY_EXTENSION_INTERVAL (23000 ms, environment) is too long for VISIBILITY_EXTENSION_AMOUNT (30 s, \
             default): a lease lasts 45000 ms and must outlive two intervals",
        ),
        (
            &[("EVENTS_TABLE", "a"), ("TABLE_NAME", "b")],
            "EVENTS_TABLE (environment) and TABLE_NAME (environment) mean the same and differ; give one of them",
        ),
        (
            &[("EVENTBRIDGE_BUS_NAME", "a"), ("EVENT_BUS_NAME", "b")],
            "EVENTBRIDGE_BUS_NAME (environment) and EVENT_BUS_NAME (environment) mean the same and differ; give one of them",
        ),
        (
            &[("ALERT_JOB_FAILED_NAMES", "nightly, acme/")],
            "ALERT_JOB_FAILED_NAMES (environment) must be names of jobs such as nightly,etl-*,TENANT/NAME; it has the entry \
             \"acme/\", which fits no job: there is no name behind its /; * stands for all of them, not \"nightly, acme/\"",
        ),
        (
            &[("TIDEMILL_SERVER", "ann:hush@host")],
            "TIDEMILL_SERVER (environment) must be a URL that begins with http:// or https://",
        ),
        (
            &[("SLACK_WEBHOOK_URL", "hush")],
            "SLACK_WEBHOOK_URL (environment) must be a URL that begins with http:// or https://",
        ),
        (
            &[("ALLOW_UNDEFINED_TASKS", "true")],
            "ALLOW_UNDEFINED_TASKS (environment) must be false: it is not available",
        ),
    ] {
        assert_eq!(dir.resolve(environment, &[]).unwrap_err(), expected);
    }
    let same =
        dir.resolve(&[("SQS_QUEUE_URL", "http://q/1"), ("TASK_QUEUE_URL", "http://q/1")], &[]).unwrap();
    assert_eq!(origin(&same, "SQS_QUEUE_URL"), "environment");
    let misspelt =
        Dir::with(&[(".env", "TIDEMILL_DTA=x\nMY_OWN=1\n")]).resolve(&[("TIDEMILL_ELSE", "1")], &[]).unwrap();
    assert_eq!(misspelt.warnings, ["TIDEMILL_DTA (.env:1) is not a setting; did you mean TIDEMILL_DATA?"]);
    let warned = dir.resolve(&[("PROCESSING_TIMEOUT_MS", "1000")], &[]).unwrap();
    assert_eq!(warned.warnings, ["PROCESSING_TIMEOUT_MS (environment) has no effect"]);
}

#[test]
fn files_that_cannot_be_read_are_named_with_the_line() {
    for (files, expected) in [
        (&[(".env", "A=1\nB\n")][..], ".env:2: NAME=value is expected"),
        (
            &[("tidemill.yaml", "MAX_SLOTS: 3\n")],
            "tidemill.yaml:1:1: MAX_SLOTS: there is no setting of this name",
        ),
        (
            &[("tidemill.yaml", "TENANTID: acme\n")],
            "tidemill.yaml:1:1: TENANTID: there is no setting of this name; did you mean TENANT_ID?",
        ),
        (&[("tidemill.yml", "APP_NAME: [a]\n")], "tidemill.yml:1:1: APP_NAME: must be a single value"),
        (&[("tidemill.yaml", "- a\n")], "tidemill.yaml:1:1: must be a map of names and values"),
        (
            &[("tidemill.yaml", "A: 1"), ("tidemill.yml", "")],
            "tidemill.yaml and tidemill.yml are both there; keep one of them",
        ),
    ] {
        assert_eq!(Dir::with(files).resolve(&[], &[]).unwrap_err(), expected);
    }
}

#[test]
fn an_address_of_a_found_file_gets_only_a_key_of_that_file() {
    let env = |text: &'static str| [(".env", text)];
    let yaml = |text: &'static str| [("tidemill.yaml", text)];
    for (files, environment, flags, expected) in [
        // With a key from elsewhere.
        (
            env("A=1\nTIDEMILL_SERVER=http://evil:1"),
            &[("TIDEMILL_API_KEY", "k")][..],
            &[][..],
            Some("TIDEMILL_SERVER (.env:2) would be sent TIDEMILL_API_KEY (environment)"),
        ),
        (
            yaml("TIDEMILL_SERVER: http://evil:1"),
            &[("TIDEMILL_API_KEY", "k")],
            &[],
            Some("TIDEMILL_SERVER (tidemill.yaml:1) would be sent TIDEMILL_API_KEY (environment)"),
        ),
        (
            env("TIDEMILL_SERVER=http://evil:1"),
            &[],
            &[("TIDEMILL_API_KEY", "k")],
            Some("would be sent TIDEMILL_API_KEY (--flag)"),
        ),
        (
            env("ANTHROPIC_BASE_URL=http://evil:1"),
            &[("ANTHROPIC_API_KEY", "k")],
            &[],
            Some("ANTHROPIC_BASE_URL (.env:1) would be sent ANTHROPIC_API_KEY (environment)"),
        ),
        (
            env("ANTHROPIC_BASE_URL=http://evil:1\nANTHROPIC_API_KEY=own"),
            &[("CLAUDE_CODE_OAUTH_TOKEN", "k")],
            &[],
            Some("would be sent CLAUDE_CODE_OAUTH_TOKEN (environment)"),
        ),
        (
            env("HTTPS_PROXY=http://evil:1"),
            &[("ANTHROPIC_AUTH_TOKEN", "k")],
            &[],
            Some("HTTPS_PROXY (.env:1) would be sent ANTHROPIC_AUTH_TOKEN"),
        ),
        (
            yaml("SLACK_API_URL: http://evil:1"),
            &[("SLACK_BOT_TOKEN", "k")],
            &[],
            Some("SLACK_API_URL (tidemill.yaml:1) would be sent SLACK_BOT_TOKEN"),
        ),
        (
            env("OTEL_EXPORTER_OTLP_ENDPOINT=http://evil:1"),
            &[("OTEL_EXPORTER_OTLP_HEADERS", "a=b")],
            &[],
            Some("OTEL_EXPORTER_OTLP_ENDPOINT (.env:1) would be sent OTEL_EXPORTER_OTLP_HEADERS"),
        ),
        (
            yaml("AWS_ENDPOINT_URL: http://evil:1"),
            &[("AWS_SECRET_ACCESS_KEY", "k")],
            &[],
            Some("AWS_ENDPOINT_URL (tidemill.yaml:1) would be sent AWS_SECRET_ACCESS_KEY"),
        ),
        // With its own key, without one, or with an address from elsewhere.
        (env("TIDEMILL_SERVER=http://a:1\nTIDEMILL_API_KEY=own"), &[], &[], None),
        (env("TIDEMILL_SERVER=http://a:1"), &[], &[], None),
        (
            env("TIDEMILL_SERVER=http://evil:1"),
            &[("TIDEMILL_SERVER", "http://a:1"), ("TIDEMILL_API_KEY", "k")],
            &[],
            None,
        ),
        (
            env("TIDEMILL_SERVER=http://evil:1"),
            &[("TIDEMILL_API_KEY", "k")],
            &[("TIDEMILL_SERVER", "http://a:1")],
            None,
        ),
        (env("TIDEMILL_API_KEY=own"), &[("TIDEMILL_SERVER", "http://a:1")], &[], None),
        (env("ANTHROPIC_BASE_URL=http://a:1\nANTHROPIC_API_KEY=own"), &[], &[], None),
        // Programs.
        (env("CLAUDE_BIN=claude"), &[], &[], Some("CLAUDE_BIN (.env:1) must be an absolute path")),
        (
            yaml("CLAUDE_BIN: ./claude"),
            &[],
            &[],
            Some("CLAUDE_BIN (tidemill.yaml:1) must be an absolute path"),
        ),
        (
            env("CLAUDE_CODE_PATH=bin/claude"),
            &[],
            &[],
            Some("CLAUDE_BIN (.env:1, as CLAUDE_CODE_PATH) must be an absolute path"),
        ),
        (env("CLAUDE_BIN=/opt/claude"), &[], &[], None),
        (env("CLAUDE_BIN=evil"), &[("CLAUDE_BIN", "./claude")], &[], None),
    ] {
        let found = Dir::with(&files).resolve(environment, flags);
        match expected {
            None => assert!(found.is_ok(), "{files:?}: {}", found.unwrap_err()),
            Some(expected) => {
                let problem = found.map(drop).unwrap_err();
                assert!(problem.contains(expected), "{files:?}: {problem}");
            }
        }
    }
}

/// One name from a found file, one from the environment, and what is wrong with that.
#[test]
fn a_found_file_decides_nothing_about_keys_from_elsewhere() {
    const SIGNING: &str = "WEBHOOK_SIGNING_KEY=0123456789abcdef0123456789abcdef";
    const NEEDS: &str = "needs AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the same file";
    const OWN_AWS: &str = "AWS_ENDPOINT_URL=http://a:1\nAWS_ACCESS_KEY_ID=own\nAWS_SECRET_ACCESS_KEY=own";
    for (text, elsewhere, expected) in [
        (
            "ANTHROPIC_FOUNDRY_RESOURCE=evil",
            "ANTHROPIC_FOUNDRY_API_KEY=k",
            "sent ANTHROPIC_FOUNDRY_API_KEY (environment)",
        ),
        (
            "ANTHROPIC_BASE_URL=http://evil:1\nANTHROPIC_API_KEY=own",
            "CLAUDE_CODE_CLIENT_KEY_PASSPHRASE=k",
            "sent CLAUDE_CODE_CLIENT_KEY_PASSPHRASE",
        ),
        ("ANTHROPIC_BASE_URL=http://evil:1", "ANTHROPIC_CUSTOM_HEADERS=k", "sent ANTHROPIC_CUSTOM_HEADERS"),
        ("ANTHROPIC_BASE_URL=http://evil:1", "CLAUDE_CONFIG_DIR=/k", "sent CLAUDE_CONFIG_DIR"),
        (
            "CLAUDE_CODE_USE_FOUNDRY=1",
            "ANTHROPIC_API_KEY=k",
            "CLAUDE_CODE_USE_FOUNDRY (.env:1) would be sent ANTHROPIC_API_KEY",
        ),
        (
            "NODE_EXTRA_CA_CERTS=evil.pem",
            "CLAUDE_CODE_OAUTH_TOKEN=k",
            "NODE_EXTRA_CA_CERTS (.env:1) would be sent CLAUDE_CODE_OAUTH_TOKEN",
        ),
        (
            "SSL_CERT_FILE=evil.pem",
            "ANTHROPIC_API_KEY=k",
            "SSL_CERT_FILE (.env:1) would be sent ANTHROPIC_API_KEY",
        ),
        ("SSL_CERT_DIR=evil", "ANTHROPIC_API_KEY=k", "SSL_CERT_DIR (.env:1) would be sent ANTHROPIC_API_KEY"),
        (
            "ALL_PROXY=http://evil:1",
            "ANTHROPIC_API_KEY=k",
            "ALL_PROXY (.env:1) would be sent ANTHROPIC_API_KEY",
        ),
        (
            "ALERT_WEBHOOK_URL=http://evil:1",
            SIGNING,
            "ALERT_WEBHOOK_URL (.env:1) would be sent WEBHOOK_SIGNING_KEY",
        ),
        (
            "WORKFLOW_WEBHOOK_URL=http://evil:1",
            SIGNING,
            "WORKFLOW_WEBHOOK_URL (.env:1) would be sent WEBHOOK_SIGNING_KEY",
        ),
        // Keys of AWS may come from a profile or a role, which is given nowhere.
        ("AWS_ENDPOINT_URL=http://evil:1", "", NEEDS),
        ("AWS_ENDPOINT_URL_S3=http://evil:1", "", NEEDS),
        ("AWS_ENDPOINT_URL=http://evil:1\nAWS_ACCESS_KEY_ID=own", "", NEEDS),
        (OWN_AWS, "AWS_SESSION_TOKEN=k", "would be sent AWS_SESSION_TOKEN (environment)"),
        // What tasks are given of the environment is no matter of a folder.
        (
            "TASK_SECRETS=DB_URL",
            "DB_URL=k",
            "TASK_SECRETS (.env:1) would give variables of the environment to tasks",
        ),
        // Nothing is wrong.
        (OWN_AWS, "", ""),
        ("TASK_SECRETS=DB_URL", "TASK_SECRETS=OTHER", ""),
        ("AWS_ENDPOINT_URL=http://evil:1", "AWS_ENDPOINT_URL=http://a:1", ""),
        ("ALERT_WEBHOOK_URL=http://a:1\nWEBHOOK_SIGNING_KEY=0123456789abcdef0123456789abcdef", "", ""),
        ("ALERT_WEBHOOK_URL=http://a:1", "", ""),
        ("CLAUDE_CODE_USE_FOUNDRY=1\nANTHROPIC_FOUNDRY_API_KEY=own", "", ""),
        ("NODE_EXTRA_CA_CERTS=own.pem", "", ""),
    ] {
        let environment: Vec<_> = elsewhere.split_once('=').into_iter().collect();
        match Dir::with(&[(".env", text)]).resolve(&environment, &[]) {
            Ok(_) => assert_eq!(expected, "", "{text} with {elsewhere} was taken"),
            Err(problem) => assert!(!expected.is_empty() && problem.contains(expected), "{text}: {problem}"),
        }
    }
    let yaml = Dir::with(&[("tidemill.yaml", "TASK_SECRETS: DB_URL\nAWS_ENDPOINT_URL: http://evil:1\n")]);
    let problem = yaml.resolve(&[], &[]).map(drop).unwrap_err();
    for expected in ["TASK_SECRETS (tidemill.yaml:1) would give", "AWS_ENDPOINT_URL (tidemill.yaml:2) needs"]
    {
        assert!(problem.contains(expected), "{problem}");
    }
}

#[test]
fn a_file_that_was_named_may_say_everything() {
    let dir = Dir::with(&[(
        "own.yaml",
        "TIDEMILL_SERVER: http://a:1\nCLAUDE_BIN: ./claude\nTASK_SECRETS: DB_URL\nAWS_ENDPOINT_URL: http://a:1\n",
    )]);
    let environment = [("TIDEMILL_API_KEY".to_owned(), "k".to_owned())];
    let file = dir.0.join("own.yaml");
    let sources = Sources::read(&dir.0, environment, Some(&file), std::collections::BTreeMap::new());
    let resolved = sources.and_then(|sources| sources.resolve()).unwrap();
    assert_eq!(resolved.values.server.as_deref(), Some("http://a:1"));
    assert!(resolved.found_program("CLAUDE_BIN").is_none());
}

#[test]
fn the_table_knows_which_settings_are_secrets() {
    for (name, expected) in [
        ("TASK_SECRETS", false),
        ("TOKEN_KEY_FILE", false),
        ("TOKEN_KEY", true),
        ("TIDEMILL_API_KEY", true),
        ("SLACK_WEBHOOK_URL", true),
        ("WEBHOOK_SIGNING_KEY", true),
        ("OTEL_EXPORTER_OTLP_TRACES_HEADERS", true),
        ("STRIPE_KEY", true),
        ("DATABASE_URL", false),
    ] {
        assert_eq!(names_secret(name), expected, "{name}");
    }
}
