//! What tests do where no double is installed: on the machine of a contributor they say so and pass, in CI they fail.

use std::process::{Command, Output};

/// One of each way in which tests ask for a double.
const CASES: [&str; 3] = [
    "conformance::on_moto::appends_in_order",
    "duty::a_duty_has_one_holder_and_passes_on",
    "lagging::on_moto::a_child_gets_its_parents_output_from_the_log",
];

/// Runs those tests in a process without a double.
fn run(ci: &str) -> Output {
    Command::new(std::env::current_exe().expect("this process has a program"))
        .args(["--exact", "--test-threads=1"])
        .args(CASES)
        .env("CI", ci)
        .env_remove("TIDEMILL_TEST_AWS_DOUBLES")
        .output()
        .expect("this program starts again")
}

#[test]
fn in_ci_a_test_without_its_double_fails() {
    let ran = run("true");
    let words = String::from_utf8_lossy(&ran.stdout);
    assert!(!ran.status.success(), "{words}");
    assert!(words.contains("0 passed; 3 failed"), "{words}");
    assert_eq!(words.matches("TIDEMILL_TEST_AWS_DOUBLES is not set").count(), CASES.len(), "{words}");
}

#[test]
fn elsewhere_it_passes_and_says_that_it_was_skipped() {
    let ran = run("");
    let words = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{words}");
    for case in CASES {
        assert!(words.contains(&format!("SKIPPED {case}: TIDEMILL_TEST_AWS_DOUBLES is not set")), "{words}");
    }
}
