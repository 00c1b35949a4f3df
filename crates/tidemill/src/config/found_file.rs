//! What `.env` and `tidemill.yaml` may say, which nobody named: they are read because they lie in the working directory.
//!
//! A user who can write there must not get a key that was set elsewhere, nor have a program run that only they know.
//! A file that was named by `--config` was chosen, and may say everything.

use tidemill_model::security::secrets::is_secret_name;

use super::resolve::Source;

/// An address, and what is sent to it so that it lets us in.
struct Addressed {
    is_address: fn(&str) -> bool,
    is_credential: fn(&str) -> bool,
    /// What the file must have of its own, because credentials are also found where nobody gave them.
    own: &'static [&'static str],
}

const ADDRESSED: [Addressed; 6] = [
    Addressed {
        is_address: |name| name == "TIDEMILL_SERVER",
        is_credential: |name| name == "TIDEMILL_API_KEY",
        own: &[],
    },
    Addressed { is_address: is_address_of_agents, is_credential: is_credential_of_agents, own: &[] },
    Addressed {
        is_address: |name| name == "SLACK_API_URL",
        is_credential: |name| name == "SLACK_BOT_TOKEN",
        own: &[],
    },
    // What is signed for one receiver must not be asked for by another.
    Addressed {
        is_address: |name| ["ALERT_WEBHOOK_URL", "WORKFLOW_WEBHOOK_URL"].contains(&name),
        is_credential: |name| name == "WEBHOOK_SIGNING_KEY",
        own: &[],
    },
    Addressed {
        is_address: |name| name.starts_with("OTEL_EXPORTER_OTLP_") && name.ends_with("ENDPOINT"),
        is_credential: |name| {
            ["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"].contains(&name)
        },
        own: &[],
    },
    // A profile or the role of the machine has keys as well.
    Addressed {
        is_address: |name| name.starts_with("AWS_ENDPOINT_URL"),
        is_credential: |name| {
            ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"].contains(&name)
        },
        own: &["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"],
    },
];

/// What programs are started by.
const PROGRAMS: [&str; 1] = ["CLAUDE_BIN"];

/// What opens variables of the environment to tasks.
const OPENERS: [&str; 1] = ["TASK_SECRETS"];

/// What agents send their words through, and whom they believe to be at the other end.
const ON_THE_WAY: [&str; 9] = [
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "ALL_PROXY",
    "https_proxy",
    "http_proxy",
    "all_proxy",
    "NODE_EXTRA_CA_CERTS",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
];

fn is_of_agents(name: &str) -> bool {
    ["ANTHROPIC_", "CLAUDE_"].iter().any(|beginning| name.starts_with(beginning))
}

/// Whether it decides where the credentials of an agent go, or what they pass on their way.
fn is_address_of_agents(name: &str) -> bool {
    let decides =
        name.ends_with("_URL") || name.ends_with("_RESOURCE") || name.starts_with("CLAUDE_CODE_USE_");
    (is_of_agents(name) && decides) || ON_THE_WAY.contains(&name)
}

/// Whether an agent logs in with it.
fn is_credential_of_agents(name: &str) -> bool {
    is_of_agents(name) && (is_secret_name(name) || name == "CLAUDE_CONFIG_DIR")
}

/// Tells what such a file must not say. `given` holds all that was given, by the name it counts under.
pub(super) fn check<'a>(given: impl Iterator<Item = (&'a str, &'a Source)>, problems: &mut Vec<String>) {
    let given: Vec<_> = given.collect();
    for (name, source) in &given {
        let Some(file) = source.origin.found_file() else { continue };
        if PROGRAMS.contains(name) && !source.value.starts_with('/') {
            problems.push(format!(
                "{name} ({}) must be an absolute path, because nobody named the file that says it",
                source.place()
            ));
        }
        if OPENERS.contains(name) {
            problems.push(format!(
                "{name} ({}) would give variables of the environment to tasks, and nobody named the file that says it; \
                 set it in the environment, or name the file with --config",
                source.place()
            ));
        }
        for entry in ADDRESSED.iter().filter(|entry| (entry.is_address)(name)) {
            let from_elsewhere = given.iter().find(|(credential, source)| {
                (entry.is_credential)(credential) && source.origin.found_file() != Some(file)
            });
            let is_own = |own: &&str| {
                given.iter().any(|(name, source)| name == own && source.origin.found_file() == Some(file))
            };
            if let Some((credential, elsewhere)) = from_elsewhere {
                problems.push(format!(
                    "{name} ({}) would be sent {credential} ({}): an address that a file of the working directory names \
                     gets only a key from that file; set the address in the environment or by a flag, or name the file \
                     with --config",
                    source.place(),
                    elsewhere.place()
                ));
            } else if !entry.own.iter().all(is_own) {
                problems.push(format!(
                    "{name} ({}) needs {} in the same file: an address that a file of the working directory names gets only \
                     a key from that file, not one of a profile or a role; set the address in the environment, or name the \
                     file with --config",
                    source.place(),
                    entry.own.join(" and ")
                ));
            }
        }
    }
}
