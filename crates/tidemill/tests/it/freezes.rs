//! Processes that stand still and lines that are held: nobody runs a task beside somebody else, and nothing that was done is
//! done again.
//!
//! `TIDEMILL_FREEZES` says how often each of these tests stops or holds something; more is a longer run of the same.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use rustix::process::Signal;

use crate::agent::children_of;
use crate::remote_worker::Line;
use crate::sandbox::{Running, Sandbox, Server, eventually, is_alive};

/// A lease of 1.5 s instead of 45.
const SHORT: [(&str, &str); 2] =
    [("VISIBILITY_EXTENSION_INTERVAL", "300"), ("VISIBILITY_EXTENSION_AMOUNT", "1")];
/// And one of 4.5 s, which leaves a second for killing.
const LONGER: [(&str, &str); 2] =
    [("VISIBILITY_EXTENSION_INTERVAL", "1000"), ("VISIBILITY_EXTENSION_AMOUNT", "3")];
/// Longer than a lease, and than the gap in time that a server notices.
const LONG: Duration = Duration::from_secs(4);
/// How long a child that should have ended has to show that it lives.
const BESIDE: Duration = Duration::from_millis(500);

fn freezes() -> usize {
    #[expect(clippy::disallowed_methods, reason = "whoever runs the tests says how long")]
    std::env::var("TIDEMILL_FREEZES").ok().and_then(|text| text.parse().ok()).unwrap_or(2)
}

/// A job of tasks that each write down, in a file of the task and the fence, every moment at which they lived.
fn stamping(sandbox: &Sandbox, name: &str, tasks: usize, rounds: usize) {
    stamping_after(sandbox, name, "", tasks, rounds);
}

/// The same after something else.
fn stamping_after(sandbox: &Sandbox, name: &str, first: &str, tasks: usize, rounds: usize) {
    let run = format!(
        "{first}i=0; while [ $i -lt {rounds} ]; do i=$((i+1)); read up rest < /proc/uptime; \
         echo $up >> stamps-$TIDEMILL_REQUEST_ID-$TIDEMILL_FENCE; sleep 0.03; done"
    );
    let tasks = (0..tasks).map(|n| format!("- {{taskId: t{n}, run: '{run}'}}\n"));
    sandbox.write(name, &format!("tasks:\n{}", tasks.collect::<String>()));
}

/// The lives that tasks had below some directories: from the first to the last stamp, by task and fence.
fn lives(dirs: &[&Path]) -> BTreeMap<(String, u32), (f64, f64)> {
    let mut lives = BTreeMap::new();
    for entry in dirs.iter().flat_map(|dir| std::fs::read_dir(dir).unwrap()) {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let Some((task, fence)) = name.strip_prefix("stamps-").and_then(|name| name.rsplit_once('-')) else {
            continue;
        };
        let text = std::fs::read_to_string(&path).unwrap();
        // A line that was being written when its process was killed says nothing.
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        let stamps: Vec<f64> = whole.lines().map(|line| line.parse().unwrap()).collect();
        let (Some(first), Some(last)) = (stamps.first(), stamps.last()) else { continue };
        lives.insert((task.to_owned(), fence.parse().unwrap()), (*first, *last));
    }
    lives
}

/// No life of a task began before those of all lower fences were over. How many followed another one.
fn assert_alone(dirs: &[&Path]) -> usize {
    let lives = lives(dirs);
    let mut takeovers = 0;
    for ((task, fence), life) in &lives {
        let later = lives.range((task.clone(), fence + 1)..).take_while(|((other, _), _)| other == task);
        for (count, ((_, next_fence), next)) in later.enumerate() {
            takeovers += usize::from(count == 0);
            assert!(life.1 <= next.0, "{task}: fence {fence} lived {life:?}, fence {next_fence} {next:?}");
        }
    }
    takeovers
}

fn passes(time: Duration) {
    let began = std::time::Instant::now();
    eventually("time", || began.elapsed() >= time);
}

/// Whether one of the tasks of a job that a directory has seen has run under a higher fence elsewhere.
fn is_taken_over(job: &str, from: &Path, by: &Path) -> bool {
    let (old, new) = (lives(&[from]), lives(&[by]));
    new.keys()
        .filter(|(task, _)| task.starts_with(job))
        .any(|(task, fence)| old.keys().any(|(old_task, old_fence)| old_task == task && old_fence < fence))
}

fn worker(sandbox: &Sandbox, url: &str, more: &[(&str, &str)]) -> Running {
    let settings: Vec<_> = SHORT.iter().chain(more).copied().collect();
    let mut worker = sandbox.start(&["worker", "--server", url, "--concurrency", "4"], &settings);
    worker.wait_for("working for ");
    worker
}

/// Stops or continues the processes by which somebody starts tasks, as far as they are there.
fn signal_all(spawners: &[u32], signal: Signal) {
    for pid in spawners {
        let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
        let _ = rustix::process::kill_process(pid, signal);
    }
}

fn stop(workers: Vec<Running>, server: Server) {
    for worker in workers {
        worker.signal(Signal::TERM);
        assert_eq!(worker.end().code, 0);
    }
    server.stop().ok();
}

#[test]
fn children_of_a_worker_that_stands_still_end_with_its_lease() {
    let (sandbox, places) = (Sandbox::new(), [Sandbox::new(), Sandbox::new()]);
    let dirs = [places[0].dir.as_path(), places[1].dir.as_path()];
    let server = sandbox.serve(&["--no-worker"], &SHORT);
    let workers: Vec<_> = places.iter().map(|place| worker(place, &server.url, &[])).collect();
    for round in 0..freezes() {
        let name = format!("job-{round}.yaml");
        stamping(&sandbox, &name, 3, 120);
        let id = sandbox.run(&["submit", &name]).ok().out.trim().to_owned();
        let is_running =
            |((task, _), life): (&(String, u32), &(f64, f64))| task.starts_with(&id) && life.1 > life.0;
        let running = || dirs.iter().position(|dir| lives(&[dir]).iter().any(is_running));
        eventually("a task", || running().is_some());
        let frozen = running().unwrap();
        let other = 1 - frozen;
        workers[frozen].signal(Signal::STOP);
        eventually("a takeover", || is_taken_over(&id, dirs[frozen], dirs[other]));
        passes(BESIDE);
        workers[frozen].signal(Signal::CONT);
        let report = sandbox.run(&["jobs", "watch", &id, "--json"]).ok().json();
        assert_eq!(report["status"], "completed");
    }
    assert!(assert_alone(&dirs) >= freezes());
    stop(workers, server);
}

/// A worker that is well keeps its leases, however long its spawner hangs.
#[test]
fn a_spawner_that_stands_still_costs_no_lease() {
    let (sandbox, places) = (Sandbox::new(), [Sandbox::new(), Sandbox::new()]);
    let dirs = [places[0].dir.as_path(), places[1].dir.as_path()];
    let server = sandbox.serve(&["--no-worker"], &SHORT);
    let mut workers = vec![worker(&places[0], &server.url, &[])];
    stamping(&sandbox, "job.yaml", 3, 200);
    let id = sandbox.run(&["submit", "job.yaml"]).ok().out.trim().to_owned();
    eventually("all tasks", || lives(&[dirs[0]]).len() == 3);
    let spawners = children_of(workers[0].pid());
    signal_all(&spawners, Signal::STOP);
    workers.push(worker(&places[1], &server.url, &[]));
    passes(LONG);
    signal_all(&spawners, Signal::CONT);
    let report = sandbox.run(&["jobs", "watch", &id, "--json"]).ok().json();
    assert_eq!(report["status"], "completed");
    assert_alone(&dirs);
    stop(workers, server);
}

/// The same for the worker in a server.
#[test]
fn a_spawner_of_a_server_that_stands_still_costs_no_lease() {
    let sandbox = Sandbox::new();
    let settings: Vec<_> = LONGER.iter().copied().chain([("SWEEP_INTERVAL_MS", "500")]).collect();
    let server = sandbox.serve(&["--concurrency", "6"], &settings);
    stamping(&sandbox, "job.yaml", 3, 400);
    let id = sandbox.run(&["submit", "job.yaml"]).ok().out.trim().to_owned();
    eventually("all tasks", || lives(&[&sandbox.dir]).len() == 3);
    let spawners = children_of(server.process.pid());
    signal_all(&spawners, Signal::STOP);
    passes(LONG * 2);
    signal_all(&spawners, Signal::CONT);
    let report = sandbox.run(&["jobs", "watch", &id, "--json"]).ok().json();
    assert_eq!(report["status"], "completed");
    assert_alone(&[&sandbox.dir]);
    server.stop().ok();
}

/// A spawner that hangs when the lease is over is killed, and the children with it, before somebody else begins.
#[test]
fn a_spawner_that_stands_still_is_killed_when_the_lease_is_over() {
    let (sandbox, places) = (Sandbox::new(), [Sandbox::new(), Sandbox::new()]);
    let dirs = [places[0].dir.as_path(), places[1].dir.as_path()];
    let token = sandbox.run(&["keys", "create", "--role", "admin"]).ok().out.trim().to_owned();
    let key = sandbox.run(&["keys", "create", "--role", "worker"]).ok().out.trim().to_owned();
    let admin = [("TIDEMILL_API_KEY", token.as_str())];
    let settings: Vec<_> = LONGER.iter().copied().chain([("TIDEMILL_API_KEY", key.as_str())]).collect();
    let server = sandbox.serve(&["--no-worker"], &LONGER);
    let line = Line::to(server.url.trim_start_matches("http://"));
    let mut workers = vec![worker(&places[0], &line.url, &settings)];
    stamping(&sandbox, "job.yaml", 3, 300);
    let id = sandbox.run_with(&["submit", "job.yaml"], &admin).ok().out.trim().to_owned();
    eventually("all tasks", || lives(&[dirs[0]]).len() == 3);
    let spawners = children_of(workers[0].pid());
    signal_all(&spawners, Signal::STOP);
    line.hold(true);
    workers.push(worker(&places[1], &server.url, &settings));
    eventually("a takeover", || is_taken_over(&id, dirs[0], dirs[1]));
    passes(BESIDE);
    line.hold(false);
    signal_all(&spawners, Signal::CONT);
    let report = sandbox.run_with(&["jobs", "watch", &id, "--json"], &admin).ok().json();
    assert_eq!(report["status"], "completed");
    assert!(assert_alone(&dirs) >= 1);
    stop(workers, server);
}

/// The same for one that hangs after it started a child and before it says so: nobody knows of the child then.
#[test]
fn a_spawner_that_stands_still_before_it_answers_is_killed_when_the_lease_is_over() {
    let (sandbox, places) = (Sandbox::new(), [Sandbox::new(), Sandbox::new()]);
    let dirs = [places[0].dir.as_path(), places[1].dir.as_path()];
    let token = sandbox.run(&["keys", "create", "--role", "admin"]).ok().out.trim().to_owned();
    let key = sandbox.run(&["keys", "create", "--role", "worker"]).ok().out.trim().to_owned();
    let admin = [("TIDEMILL_API_KEY", token.as_str())];
    let settings: Vec<_> = LONGER.iter().copied().chain([("TIDEMILL_API_KEY", key.as_str())]).collect();
    let server = sandbox.serve(&["--no-worker"], &LONGER);
    let line = Line::to(server.url.trim_start_matches("http://"));
    let mut workers = vec![worker(&places[0], &line.url, &settings)];
    // The first child stops its spawner, which waits a moment before it tells of a start.
    stamping_after(&sandbox, "job.yaml", "[ $TIDEMILL_FENCE -gt 1 ] || kill -STOP $PPID; ", 1, 300);
    let id = sandbox.run_with(&["submit", "job.yaml"], &admin).ok().out.trim().to_owned();
    eventually("the task", || !lives(&[dirs[0]]).is_empty());
    line.hold(true);
    let spawners = children_of(workers[0].pid());
    workers.push(worker(&places[1], &server.url, &settings));
    eventually("a takeover", || is_taken_over(&id, dirs[0], dirs[1]));
    passes(BESIDE);
    line.hold(false);
    signal_all(&spawners, Signal::CONT);
    let report = sandbox.run_with(&["jobs", "watch", &id, "--json"], &admin).ok().json();
    assert_eq!(report["status"], "completed");
    assert_eq!(assert_alone(&dirs), 1);
    stop(workers, server);
}

/// A line that holds everything back for longer than a lease, at any moment, lets nothing begin that somebody else has.
#[test]
fn nothing_begins_after_its_lease_when_the_line_is_held() {
    let (sandbox, places) = (Sandbox::new(), [Sandbox::new(), Sandbox::new()]);
    let dirs = [places[0].dir.as_path(), places[1].dir.as_path()];
    // Through another port only a server with keys answers.
    let token = sandbox.run(&["keys", "create", "--role", "admin"]).ok().out.trim().to_owned();
    let key = sandbox.run(&["keys", "create", "--role", "worker"]).ok().out.trim().to_owned();
    let (admin, key) = ([("TIDEMILL_API_KEY", token.as_str())], [("TIDEMILL_API_KEY", key.as_str())]);
    let server = sandbox.serve(&["--no-worker"], &SHORT);
    let line = Line::to(server.url.trim_start_matches("http://"));
    let workers = vec![worker(&places[0], &line.url, &key), worker(&places[1], &server.url, &key)];
    for round in 0..freezes() {
        let name = format!("job-{round}.yaml");
        stamping(&sandbox, &name, 4, 60);
        // Questions get through and answers do not: what is claimed now is told when its lease is over.
        line.hold(round % 2 == 0);
        let id = sandbox.run_with(&["submit", &name], &admin).ok().out.trim().to_owned();
        if round % 2 == 1 {
            eventually("a task beyond the line", || {
                lives(&[dirs[0]]).keys().any(|(task, _)| task.starts_with(&id))
            });
            line.hold(true);
        }
        passes(LONG);
        line.hold(false);
        let report = sandbox.run_with(&["jobs", "watch", &id, "--json"], &admin).ok().json();
        assert_eq!(report["status"], "completed");
    }
    assert_alone(&dirs);
    stop(workers, server);
}

/// The server that stands still gives its tasks to nobody, and its own worker has finished some meanwhile.
#[test]
fn what_ended_while_the_server_stood_still_is_not_done_again() {
    let sandbox = Sandbox::new();
    let run = "echo $$ >> runs-$TIDEMILL_REQUEST_ID; while [ ! -e go ]; do sleep 0.05; done";
    let server = sandbox.serve(&["--concurrency", "4"], &SHORT);
    for round in 0..freezes() {
        let _ = std::fs::remove_file(sandbox.dir.join("go"));
        let tasks = (0..3).map(|n| format!("- {{taskId: t{n}, run: '{run}'}}\n"));
        // One that goes on when the server does.
        let more = "- {taskId: long, run: 'echo $$ >> runs-$TIDEMILL_REQUEST_ID; while [ ! -e on ]; do sleep 0.05; done'}\n";
        let _ = std::fs::remove_file(sandbox.dir.join("on"));
        sandbox.write("job.yaml", &format!("tasks:\n{}{more}", tasks.collect::<String>()));
        let id = sandbox.run(&["submit", "job.yaml"]).ok().out.trim().to_owned();
        let name = |task: &str| format!("runs-{id}_{task}");
        let names = ["t0", "t1", "t2", "long"].map(name);
        eventually("all tasks", || names.iter().all(|name| sandbox.read(name).ends_with('\n')));
        server.process.signal(Signal::STOP);
        sandbox.write("go", "");
        let done: Vec<u32> =
            names[..3].iter().map(|name| sandbox.read(name).trim().parse().unwrap()).collect();
        eventually("their ends", || done.iter().all(|pid| !is_alive(*pid)));
        passes(LONG);
        server.process.signal(Signal::CONT);
        sandbox.write("on", "");
        let report = sandbox.run(&["jobs", "watch", &id, "--json"]).ok().json();
        assert_eq!(report["status"], "completed", "round {round}");
        for name in &names {
            assert_eq!(sandbox.read(name).lines().count(), 1, "{name} in round {round}");
        }
        for task in report["tasks"].as_object().unwrap().values() {
            assert_eq!(task["attempt"], 1);
        }
    }
    server.stop().ok();
}

/// The example in Python keeps to its lease as well, by a process of its own.
#[test]
fn children_of_the_python_worker_end_with_its_lease() {
    if !crate::parts::has_python() {
        return;
    }
    let (sandbox, places) = (Sandbox::new(), [Sandbox::new(), Sandbox::new()]);
    let dirs = [places[0].dir.as_path(), places[1].dir.as_path()];
    let server = sandbox.serve(&["--no-worker"], &SHORT);
    stamping(&sandbox, "job.yaml", 1, 120);
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/worker.py");
    let mut frozen = Command::new("python3")
        .arg(script)
        .arg(&server.url)
        .current_dir(dirs[0])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let signal = |signal| {
        let pid = rustix::process::Pid::from_child(&frozen);
        rustix::process::kill_process(pid, signal).unwrap();
    };
    let id = sandbox.run(&["submit", "job.yaml"]).ok().out.trim().to_owned();
    eventually("the task", || !lives(&[dirs[0]]).is_empty());
    signal(Signal::STOP);
    let other = worker(&places[1], &server.url, &[]);
    eventually("a takeover", || is_taken_over(&id, dirs[0], dirs[1]));
    passes(BESIDE);
    signal(Signal::CONT);
    let report = sandbox.run(&["jobs", "watch", &id, "--json"]).ok().json();
    assert_eq!(report["status"], "completed");
    assert_eq!(assert_alone(&dirs), 1);
    signal(Signal::TERM);
    assert!(frozen.wait().unwrap().success());
    stop(vec![other], server);
}
