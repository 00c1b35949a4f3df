//! Parts that a test needs and a machine may lack. Without one the test says so and passes; where everything is to be tested,
//! which `CI` says, it fails. The tests of several crates share this file.

#![allow(dead_code, reason = "each crate uses a part of it")]

use std::io::Write as _;
use std::process::{Command, Stdio};

/// Says that the test is skipped, and why. In CI nothing may be: there it fails the test.
#[track_caller]
pub(crate) fn skip(why: &str) {
    skip_unless(named("CI").is_some(), why);
}

#[track_caller]
fn skip_unless(is_all_tested: bool, why: &str) {
    assert!(!is_all_tested, "CI is set, which lets no test be skipped: {why}");
    let thread = std::thread::current();
    let line = format!("SKIPPED {}: {why}\n", thread.name().unwrap_or("a test"));
    // Not by a macro, which the harness would keep to itself.
    let _ = std::io::stderr().write_all(line.as_bytes());
}

pub(crate) fn has_python() -> bool {
    has("python3")
}

pub(crate) fn has_curl() -> bool {
    has("curl")
}

/// The Claude CLI that `TIDEMILL_TEST_CLAUDE` names.
pub(crate) fn claude() -> Option<String> {
    named_part("TIDEMILL_TEST_CLAUDE", "scripts/claude")
}

/// Where the doubles of AWS are that `TIDEMILL_TEST_AWS_DOUBLES` names.
pub(crate) fn aws_doubles() -> Option<String> {
    named_part("TIDEMILL_TEST_AWS_DOUBLES", "scripts/aws-doubles")
}

fn has(program: &str) -> bool {
    let version = Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let is_here = version.is_ok_and(|status| status.success());
    if !is_here {
        skip(&format!("there is no {program}"));
    }
    is_here
}

fn named_part(variable: &str, installer: &str) -> Option<String> {
    let part = named(variable);
    if part.is_none() {
        skip(&format!("{variable} is not set ({installer} prints what to set it to)"));
    }
    part
}

/// A variable, unless it is empty.
fn named(variable: &str) -> Option<String> {
    std::env::var_os(variable)?.into_string().ok().filter(|value| !value.is_empty())
}

#[test]
#[should_panic(expected = "CI is set, which lets no test be skipped: there is no such part")]
fn in_ci_a_test_that_would_be_skipped_fails() {
    skip_unless(true, "there is no such part");
}
