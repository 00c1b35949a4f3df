//! What the settings of a stage must be.

use crate::sandbox::Sandbox;

const AWS: (&str, &str) = ("TIDEMILL_BACKEND", "aws");
const TENANT: (&str, &str) = ("TENANT_ID", "acme");

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
        (
            &["jobs", "list", "--backend", "aws"],
            &[],
            &["S3_BUCKET, SQS_QUEUE_URL and EVENTBRIDGE_BUS_NAME must be set", "aws env"],
        ),
        (
            &["serve", "--backend", "aws"],
            &[TENANT, ("S3_BUCKET", "b"), ("EVENTBRIDGE_BUS_NAME", "-")],
            &["on AWS SQS_QUEUE_URL must be set"],
        ),
        // Only a data directory has a tenant of its own.
        (
            &["jobs", "list"],
            &[
                AWS,
                ("S3_BUCKET", "b"),
                ("SQS_QUEUE_URL", "http://127.0.0.1:1/q"),
                ("EVENTBRIDGE_BUS_NAME", "-"),
            ],
            &["on AWS TENANT_ID must be set"],
        ),
        // Every account has a bus called default, and what is sent there by mistake is lost.
        (
            &["worker"],
            &[AWS, TENANT, ("S3_BUCKET", "b"), ("SQS_QUEUE_URL", "http://127.0.0.1:1/q")],
            &["on AWS EVENTBRIDGE_BUS_NAME must be set"],
        ),
        (
            &["aws", "env", "--stage", "dev"],
            &[("AWS_ACCESS_KEY_ID", "k")],
            &["AWS_ACCESS_KEY_ID is set and AWS_SECRET_ACCESS_KEY is not"],
        ),
        (
            &["aws", "plan", "--stage", "Dev_X"],
            &[],
            &["Stage must match ^[a-z][a-z0-9-]{0,20}$, and Dev_X does not"],
        ),
        (
            &["worker"],
            &[AWS, ("CLAUDE_TIMEOUT", "12h")],
            &["TASK_TIMEOUT (environment, as CLAUDE_TIMEOUT) must be at most 11h"],
        ),
        (&["verify"], &[AWS], &["`tidemill verify` works on a data directory", "tidemill aws doctor"]),
        (
            &["rebuild", "--backend", "aws"],
            &[],
            &["`tidemill rebuild` works on a data directory", "import it into a new one"],
        ),
        (&["export"], &[AWS], &["S3_BUCKET, SQS_QUEUE_URL and EVENTBRIDGE_BUS_NAME must be set"]),
        (
            &["import", "x", "--backend", "aws"],
            &[],
            &["S3_BUCKET, SQS_QUEUE_URL and EVENTBRIDGE_BUS_NAME must be set"],
        ),
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
