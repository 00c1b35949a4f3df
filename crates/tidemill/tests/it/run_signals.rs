//! `tidemill run` that is stopped or killed.

use rustix::process::Signal;

use crate::sandbox::{Sandbox, eventually, is_alive};

/// Two tasks; the second one says where it is and waits to be let go.
const JOB: &str = "\
name: held
tasks:
- {taskId: a, run: echo a >> ran}
- {taskId: b, run: 'echo b >> ran; echo $$ > pid; echo waiting; while [ ! -e go ]; do sleep 0.05; done', dependsOn: [a]}
- {taskId: c, run: echo c >> ran, dependsOn: [b]}
";

fn pid(sandbox: &Sandbox) -> u32 {
    sandbox.read("pid").trim().parse().unwrap()
}

#[test]
fn a_job_goes_on_after_a_kill_and_completed_tasks_are_not_run_again() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", JOB);
    let mut first = sandbox.start(&["run", "job.yaml"], &[]);
    first.wait_for("b | waiting");
    let child = pid(&sandbox);
    assert!(is_alive(child));
    first.kill();
    eventually("the end of the killed process' task", || !is_alive(child));
    sandbox.write("go", "");
    let second = sandbox.run(&["run", "job.yaml", "--resume", "--json"]).ok();
    assert_eq!(second.json()["status"], "completed");
    assert_eq!(sandbox.read("ran"), "a\nb\nb\nc\n");
    let completed = sandbox.run(&["events", "query", "--type", "Task Completed", "--json"]).ok().json();
    assert_eq!(completed["items"].as_array().unwrap().len(), 3, "one outcome for each task");
    assert_eq!(sandbox.run(&["verify"]).code, 0);
}

#[test]
fn the_first_signal_waits_for_running_tasks() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", JOB);
    let mut process = sandbox.start(&["run", "job.yaml"], &[]);
    process.wait_for("b | waiting");
    process.signal(Signal::INT);
    process.wait_for("stopping: running tasks may end within 30.0s");
    assert!(is_alive(pid(&sandbox)), "the task goes on");
    sandbox.write("go", "");
    let ran = process.end();
    assert_eq!(ran.code, 130, "{ran:#?}");
    assert!(ran.words.contains("go on with: tidemill run job.yaml --resume"), "{ran:#?}");
    assert_eq!(sandbox.read("ran"), "a\nb\n", "nothing new was started");
    let again = sandbox.run(&["run", "job.yaml", "--resume", "--json"]).ok();
    assert_eq!(again.json()["tasks"]["b"]["attempt"], 1);
    assert_eq!(sandbox.read("ran"), "a\nb\nc\n");
}

#[test]
fn a_task_that_does_not_end_in_time_is_given_back() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", JOB);
    let mut process = sandbox.start(&["run", "job.yaml"], &[("SHUTDOWN_GRACE_MS", "1")]);
    process.wait_for("b | waiting");
    let child = pid(&sandbox);
    process.signal(Signal::TERM);
    let ran = process.end();
    assert_eq!(ran.code, 130, "{ran:#?}");
    assert!(!is_alive(child));
    sandbox.write("go", "");
    let again = sandbox.run(&["run", "job.yaml", "--resume", "--json"]).ok();
    assert_eq!(again.json()["tasks"]["b"]["attempt"], 1, "being given back is no attempt");
}

#[test]
fn a_task_that_is_given_back_waits_and_has_not_failed() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", JOB);
    let mut process = sandbox.start(&["run", "job.yaml"], &[("SHUTDOWN_GRACE_MS", "1")]);
    process.wait_for("b | waiting");
    process.signal(Signal::TERM);
    let ran = process.end();
    assert_eq!(ran.code, 130, "{ran:#?}");
    assert!(ran.words.contains(" b was given back and waits to be run again"), "{ran:#?}");
    assert!(!ran.words.contains("failed"), "{ran:#?}");
    assert_eq!(ran.words.matches(" b started").count(), 1, "{ran:#?}");
}

/// What `--json` prints when it is interrupted: one object, the last thing on standard output.
#[test]
fn an_interrupted_run_prints_one_object_whether_it_waits_or_not() {
    for (grace, is_hasty) in [("1", false), ("10m", true)] {
        let sandbox = Sandbox::new();
        sandbox.write("job.yaml", JOB);
        let started = std::time::Instant::now();
        let mut process = sandbox.start(&["run", "job.yaml", "--json"], &[("SHUTDOWN_GRACE_MS", grace)]);
        eventually("the start of the second task", || sandbox.read("pid").ends_with('\n'));
        let child = pid(&sandbox);
        // So that the time of the last end is told apart from the time of the interruption.
        eventually("some time", || started.elapsed() > std::time::Duration::from_millis(1_500));
        process.signal(Signal::INT);
        process.wait_for("stopping");
        if is_hasty {
            process.signal(Signal::INT);
        }
        let ran = process.end();
        let took = u64::try_from(started.elapsed().as_millis()).unwrap();
        assert_eq!(ran.code, 130, "{ran:#?}");
        assert_eq!(ran.out.lines().count(), 1, "{ran:#?}");
        let report = ran.json();
        assert_eq!(
            (&report["status"], &report["interrupted"]),
            (&"running".into(), &true.into()),
            "{report:#}"
        );
        let duration = report["durationMs"].as_u64().unwrap();
        assert!((1_000..=took).contains(&duration), "{duration} of {took} ms");
        let tasks = &report["tasks"];
        assert_eq!(tasks["a"]["status"], "completed");
        assert_eq!(
            (&tasks["b"]["status"], &tasks["b"]["error"]),
            (&"pending".into(), &().into()),
            "{report:#}"
        );
        assert!(tasks["c"]["status"].is_null(), "{report:#}");
        eventually("the end of the task", || !is_alive(child));
        sandbox.write("go", "");
        let again = sandbox.run(&["run", "job.yaml", "--resume", "--json"]).ok().json();
        assert_eq!((&again["status"], &again["interrupted"]), (&"completed".into(), &false.into()));
    }
}

#[test]
fn the_second_signal_does_not_wait() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", JOB);
    let mut process = sandbox.start(&["run", "job.yaml"], &[("SHUTDOWN_GRACE_MS", "10m")]);
    process.wait_for("b | waiting");
    let child = pid(&sandbox);
    process.signal(Signal::INT);
    process.wait_for("stopping");
    process.signal(Signal::INT);
    let ran = process.end();
    assert_eq!(ran.code, 130, "{ran:#?}");
    eventually("the end of the task", || !is_alive(child));
}
