//! The spawner by itself.

use std::ffi::OsString;
use std::time::Duration;

use tidemill_model::Exit;
use tidemill_worker::spawner::{ChildEvent, CommandLine, SpawnError, Spawner};

use crate::lab::{Directory, environment, eventually, is_alive, pids_in, spawner_config};

fn line(argv: &[&str]) -> CommandLine {
    CommandLine { argv: argv.iter().map(OsString::from).collect(), env: environment() }
}

fn spawner() -> Spawner {
    static COUNT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    Spawner::start(spawner_config(&format!("spawner-{}-{number}", std::process::id()), 1)).unwrap()
}

async fn ended(spawner: &Spawner, argv: &[&str]) -> (Exit, ChildEvent) {
    let mut child = spawner.spawn(line(argv)).await.unwrap();
    let ChildEvent::Exited(exit) = child.watch.event().await else { panic!("it exits first") };
    (exit.end, child.watch.event().await)
}

#[tokio::test(flavor = "multi_thread")]
async fn children_end_with_their_status_and_use() {
    if !crate::lab::has_python() {
        return;
    }
    let spawner = spawner();
    let gone = ChildEvent::Gone { forced: false, survivors: Vec::new() };
    for (text, expected) in
        [("exit 0", Exit::Code(0)), ("exit 7", Exit::Code(7)), ("kill -15 $$", Exit::Signal(15))]
    {
        assert_eq!(ended(&spawner, &["sh", "-c", text]).await, (expected, gone.clone()), "{text}");
    }
    let mut child = spawner.spawn(line(&["python3", "-c", "x = bytearray(50 << 20)"])).await.unwrap();
    let ChildEvent::Exited(exit) = child.watch.event().await else { panic!() };
    assert!(exit.peak_rss > 50 << 20, "{exit:?}");
    assert!(exit.cpu_micros > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_started_is_refused_with_its_reason() {
    let spawner = spawner();
    for (argv, errno) in [(&["/nowhere/x"][..], 2), (&["/etc/passwd"], 13), (&[], 22), (&["a\0b"], 22)] {
        match spawner.spawn(line(argv)).await {
            Err(SpawnError::Refused { errno: found }) => assert_eq!(found, errno, "{argv:?}"),
            other => panic!("{argv:?}: {other:?}"),
        }
    }
    // It goes on after that.
    assert_eq!(ended(&spawner, &["/bin/true"]).await.0, Exit::Code(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn children_have_clean_signals_descriptors_and_a_group_of_their_own() {
    if !crate::lab::has_python() {
        return;
    }
    let spawner = spawner();
    let text = r#"import os, signal, sys
blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
assert not blocked, blocked
ignored = [s for s in range(1, 32) if s not in (9, 19) and signal.getsignal(s) == signal.SIG_IGN]
assert ignored in ([], [signal.SIGPIPE, signal.SIGXFSZ]), ignored
open_fds = sorted(int(n) for n in os.listdir("/proc/self/fd"))
assert open_fds in ([0, 1, 2], [0, 1, 2, 3]), open_fds
assert os.getpgrp() == os.getpid()
assert sys.stdin.read() == """#;
    let mut child = spawner.spawn(line(&["python3", "-c", text])).await.unwrap();
    let ChildEvent::Exited(exit) = child.watch.event().await else { panic!() };
    let mut said = vec![0; 4096];
    let _ = child.stderr.readable().await;
    let count = child.stderr.try_read(&mut said).unwrap_or(0);
    assert_eq!(exit.end, Exit::Code(0), "{}", String::from_utf8_lossy(&said[..count]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_environment_passes_the_socket() {
    let spawner = spawner();
    let mut command = line(&["sh", "-c", "test ${#BIG} = 100000 && test ${#OTHER} = 100000"]);
    for name in ["BIG", "OTHER", "MORE", "MOST", "LAST"] {
        command.env.push((name.into(), "x".repeat(100_000).into()));
    }
    for _ in 0..5 {
        let mut child = spawner.spawn(command.clone()).await.unwrap();
        let ChildEvent::Exited(exit) = child.watch.event().await else { panic!() };
        assert_eq!(exit.end, Exit::Code(0));
    }
    // More than the kernel takes.
    command.env.extend((0..40).map(|n| (format!("N{n}").into(), "x".repeat(100_000).into())));
    assert_eq!(spawner.spawn(command).await.err(), Some(SpawnError::Refused { errno: 7 }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_process_is_ended_too_and_memory_is_measured() {
    let spawner = spawner();
    let mut child = spawner.spawn(line(&["sh", "-c", "sleep 300 & kill -STOP $$"])).await.unwrap();
    let handle = child.watch.handle();
    eventually("it stopped", || {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.pid)).unwrap_or_default();
        stat.contains(") T ")
    })
    .await;
    assert!(handle.rss().await > 100_000);
    handle.end(Duration::from_secs(20));
    let ChildEvent::Exited(exit) = child.watch.event().await else { panic!() };
    assert_eq!(exit.end, Exit::Signal(15));
    assert_eq!(child.watch.event().await, ChildEvent::Gone { forced: false, survivors: Vec::new() });
    assert_eq!(handle.rss().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_forks_as_fast_as_it_can_is_killed() {
    if !crate::lab::has_python() {
        return;
    }
    let spawner = spawner();
    let directory = Directory::fresh();
    let pids = directory.0.join("pids");
    // Each generation starts the next one in a session of its own and ends: there is always exactly one runner. It ends by
    // itself in the end, lest it outlive a test that was killed.
    let text = format!(
        r#"import os, time
end = time.time() + 60
open("{}", "a").write(str(os.getpid()) + "\n")
while time.time() < end:
    if os.fork(): os._exit(0)
    os.setsid()"#,
        pids.display()
    );
    let mut child =
        spawner.spawn(line(&["sh", "-c", "python3 -c \"$0\"; exec sleep 300", &text])).await.unwrap();
    pids_in(&pids, 1).await;
    child.watch.handle().end(Duration::ZERO);
    let ChildEvent::Exited(exit) = child.watch.event().await else { panic!() };
    assert_eq!(exit.end, Exit::Signal(9));
    let ChildEvent::Gone { forced, survivors } = child.watch.event().await else { panic!() };
    assert!(forced);
    assert_eq!(survivors, [0_u32; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn dropping_a_child_or_the_spawner_kills_what_runs() {
    let spawner = spawner();
    let directory = Directory::fresh();
    let pids = directory.0.join("pids");
    let text = format!(
        "trap '' TERM; echo $$ >> {0}; (setsid sleep 300 & echo $! >> {0}); sleep 300",
        pids.display()
    );
    let child = spawner.spawn(line(&["sh", "-c", &text])).await.unwrap();
    let first = pids_in(&pids, 2).await;
    drop(child);
    eventually("a dropped child is killed", || first.iter().all(|pid| !is_alive(*pid))).await;
    let child = spawner.spawn(line(&["sh", "-c", &text])).await.unwrap();
    let second = pids_in(&pids, 4).await;
    let processes = spawner.pids();
    drop(spawner);
    eventually("a dropped spawner kills all", || second.iter().all(|pid| !is_alive(*pid))).await;
    eventually("and ends", || processes.iter().all(|pid| !is_alive(*pid))).await;
    drop(child);
}
