//! A script host as a program of its own, for tests.

use std::process::ExitCode;

fn main() -> ExitCode {
    tidemill_script::host_main()
}
