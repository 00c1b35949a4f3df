//! What `.env` and `tidemill.yaml` may say, which nobody named: they are read because they lie in the working directory.
//!
//! Whoever can write there must not get a key that was set elsewhere, nor have a program run that only they know. A file
//! that was named by `--config` was chosen, and may say everything.

use super::resolve::Source;

/// An address, and what is sent to it so that it lets us in.
struct Addressed {
    is_address: fn(&str) -> bool,
    credentials: &'static [&'static str],
}

const ADDRESSED: [Addressed; 5] = [
    Addressed { is_address: |name| name == "TIDEMILL_SERVER", credentials: &["TIDEMILL_API_KEY"] },
    Addressed {
        is_address: is_address_of_agents,
        credentials: &[
            "ANTHROPIC_API_KEY",
            "ANTHROPIC_AUTH_TOKEN",
            "ANTHROPIC_CUSTOM_HEADERS",
            "CLAUDE_CODE_OAUTH_TOKEN",
            "CLAUDE_CONFIG_DIR",
        ],
    },
    Addressed { is_address: |name| name == "SLACK_API_URL", credentials: &["SLACK_BOT_TOKEN"] },
    Addressed {
        is_address: |name| name.starts_with("OTEL_EXPORTER_OTLP_") && name.ends_with("ENDPOINT"),
        credentials: &["OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"],
    },
    Addressed {
        is_address: |name| name.starts_with("AWS_ENDPOINT_URL"),
        credentials: &["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"],
    },
];

/// What programs are started by.
const PROGRAMS: [&str; 1] = ["CLAUDE_BIN"];

/// Whether what an agent logs in with goes there, or passes there on its way.
fn is_address_of_agents(name: &str) -> bool {
    let begins = ["ANTHROPIC_", "CLAUDE_"].iter().any(|beginning| name.starts_with(beginning));
    (begins && name.ends_with("_URL"))
        || ["HTTPS_PROXY", "HTTP_PROXY", "https_proxy", "http_proxy"].contains(&name)
}

/// Tells what such a file must not say. `given` holds all that was given, by the name it counts under.
pub(super) fn check<'a>(given: impl Iterator<Item = (&'a str, &'a Source)>, problems: &mut Vec<String>) {
    let given: Vec<_> = given.collect();
    for (name, source) in &given {
        let Some(file) = source.origin.found_file() else { continue };
        if PROGRAMS.contains(name) && !source.value.starts_with('/') {
            problems.push(format!(
                "{name} ({}) must be an absolute path, because nobody named the file that says it",
                source.origin
            ));
        }
        for Addressed { credentials, .. } in ADDRESSED.iter().filter(|entry| (entry.is_address)(name)) {
            let from_elsewhere = given.iter().find(|(credential, source)| {
                credentials.contains(credential) && source.origin.found_file() != Some(file)
            });
            if let Some((credential, elsewhere)) = from_elsewhere {
                problems.push(format!(
                    "{name} ({}) would be sent {credential} ({}): an address that a file of the working directory names \
                     gets only a key from that file; set the address in the environment or by a flag, or name the file \
                     with --config",
                    source.origin, elsewhere.origin
                ));
            }
        }
    }
}
