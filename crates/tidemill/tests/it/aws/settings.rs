//! What the settings of a stage must be.

use crate::sandbox::Sandbox;

const AWS: (&str, &str) = ("TIDEMILL_BACKEND", "aws");

/// What is wrong is told before anything is asked of AWS.
#[test]
fn contradictions_and_gaps_name_their_settings() {
    let sandbox = Sandbox::new();
    sandbox.write("x", "");
    for (arguments, environment, words) in [
        (
            &["jobs", "list"][..],
            &[AWS, ("TIDEMILL_SERVER", "http://127.0.0.1:1")][..],
            &["TIDEMILL_BACKEND (environment)", "TIDEMILL_SERVER (environment)"][..],
        ),
        (
            &["worker", "--backend", "aws", "--server", "http://127.0.0.1:1"],
            &[],
            &["TIDEMILL_BACKEND (--backend)", "TIDEMILL_SERVER (--server)"],
        ),
        (&["jobs", "list", "--backend", "aws"], &[], &["S3_BUCKET and SQS_QUEUE_URL must be set", "aws env"]),
        (&["serve", "--backend", "aws"], &[("S3_BUCKET", "b")], &["SQS_QUEUE_URL must be set"]),
        (
            &["worker"],
            &[AWS, ("CLAUDE_TIMEOUT", "12h")],
            &["CLAUDE_TIMEOUT (environment) must be at most 11h"],
        ),
        (&["verify"], &[AWS], &["`tidemill verify` works on a data directory", "tidemill aws doctor"]),
        (
            &["rebuild", "--backend", "aws"],
            &[],
            &["`tidemill rebuild` works on a data directory", "import it into a new one"],
        ),
        (&["export"], &[AWS], &["S3_BUCKET and SQS_QUEUE_URL must be set"]),
        (&["import", "x", "--backend", "aws"], &[], &["S3_BUCKET and SQS_QUEUE_URL must be set"]),
        (
            &["run", "job.yaml"],
            &[AWS],
            &["`tidemill run` works on a data directory", "tidemill submit --watch"],
        ),
        (&["serve", "--roles", "api,all"], &[], &["TIDEMILL_ROLES (--roles) must be some of api, worker"]),
    ] {
        let ran = sandbox.run_with(arguments, environment);
        assert_eq!(ran.code, 2, "{arguments:?}: {ran:#?}");
        for word in words {
            assert!(ran.words.contains(word), "{arguments:?}: {word}: {ran:#?}");
        }
    }
}
