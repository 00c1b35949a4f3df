//! Parts that a test needs and a machine may lack. Without one the test says so and passes; where everything is to be tested,
//! which `CI` says, it fails.

use std::process::{Command, Stdio};

pub(crate) fn has_python() -> bool {
    has("python3")
}

pub(crate) fn has_curl() -> bool {
    has("curl")
}

/// The Claude CLI that `TIDEMILL_TEST_CLAUDE` names.
pub(crate) fn claude() -> Option<String> {
    let named = std::env::vars().find(|(name, _)| name == "TIDEMILL_TEST_CLAUDE");
    found("claude program in TIDEMILL_TEST_CLAUDE", named.is_some())
        .then(|| named.map(|(_, program)| program))?
}

fn has(program: &str) -> bool {
    let version = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    found(program, version.is_ok_and(|status| status.success()))
}

fn found(part: &str, found: bool) -> bool {
    if !found {
        assert!(std::env::var_os("CI").is_none(), "there is no {part}, and CI is set");
        eprintln!("skipped: there is no {part}");
    }
    found
}
