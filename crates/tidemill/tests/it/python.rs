//! Examples in Python need one.

use std::process::{Command, Stdio};

/// Whether `python3` is there. Where everything is to be tested it must be.
pub(crate) fn is_there() -> bool {
    let version =
        Command::new("python3").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let found = version.is_ok_and(|status| status.success());
    if !found {
        assert!(std::env::var_os("CI").is_none(), "there is no python3, and CI is set");
        eprintln!("skipped: there is no python3");
    }
    found
}
