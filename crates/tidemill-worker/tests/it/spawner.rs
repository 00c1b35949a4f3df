//! The spawner by itself.

use std::ffi::OsString;
use std::time::Duration;

use tidemill_model::Exit;
use tidemill_worker::moment::Moment;
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
    if !crate::parts::has_python() {
        return;
    }
    let spawner = spawner();
    let gone = ChildEvent::Gone { forced: false, expired: false, survivors: Vec::new() };
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
async fn a_program_is_found_by_the_path_of_the_child() {
    let spawner = spawner();
    let directory = Directory::fresh();
    let (first, second) = (directory.0.join("first"), directory.0.join("second"));
    for (dir, name, text, mode) in [
        // Not to be run: the search goes on.
        (&first, "say", "exit 3", 0o644),
        (&second, "say", "#!/bin/sh\nexit 4", 0o755),
        // A script that does not name its shell is for `sh`, arguments and all.
        (&second, "plain", "exit $(($1 + $2))", 0o755),
        (&first, "only", "exit 6", 0o644),
    ] {
        std::fs::create_dir_all(dir).unwrap();
        std::fs::write(dir.join(name), text).unwrap();
        let permissions = std::os::unix::fs::PermissionsExt::from_mode(mode);
        std::fs::set_permissions(dir.join(name), permissions).unwrap();
    }
    let path = format!("/nowhere:{}:{}:/bin:/usr/bin", first.display(), second.display());
    let started = async |argv: &[&str], env: &[(&str, &str)]| {
        let env = env.iter().map(|(name, value)| (name.into(), value.into())).collect();
        let command = CommandLine { argv: argv.iter().map(OsString::from).collect(), env };
        let mut child = spawner.spawn(command).await?;
        let ChildEvent::Exited(exit) = child.watch.event().await else { panic!("it exits first") };
        Ok(exit.end)
    };
    let refused = |errno| Err(SpawnError::Refused { errno });
    let with_path = [("PATH", path.as_str())];
    assert_eq!(started(&["say"], &with_path).await, Ok(Exit::Code(4)));
    assert_eq!(started(&["plain", "2", "5"], &with_path).await, Ok(Exit::Code(7)));
    assert_eq!(started(&["only"], &with_path).await, refused(13));
    assert_eq!(started(&["none"], &with_path).await, refused(2));
    assert_eq!(started(&["say"], &[("PATH", "/nowhere")]).await, refused(2));
    assert_eq!(started(&["true"], &[]).await, Ok(Exit::Code(0)), "without a PATH there is a usual one");
}

#[tokio::test(flavor = "multi_thread")]
async fn starts_that_fail_leave_nothing_behind() {
    let spawner = spawner();
    let [pid] = spawner.pids()[..] else { panic!("one is enough for this") };
    let open = || std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
    assert_eq!(ended(&spawner, &["/bin/true"]).await.0, Exit::Code(0));
    let before = open();
    for _ in 0..50 {
        let refused = spawner.spawn(line(&["/nowhere/x"])).await.err();
        assert_eq!(refused, Some(SpawnError::Refused { errno: 2 }));
    }
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap();
    assert_eq!(children.trim(), "", "not even a zombie");
    assert_eq!(open(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_environment_hides_the_mark() {
    let spawner = spawner();
    let mut command = line(&["sh", "-c", "test \"${TIDEMILL_SPAWN#spawner-}\" != \"$TIDEMILL_SPAWN\""]);
    command.env.push(("TIDEMILL_SPAWN".into(), "mine".into()));
    let mut child = spawner.spawn(command).await.unwrap();
    let ChildEvent::Exited(exit) = child.watch.event().await else { panic!() };
    assert_eq!(exit.end, Exit::Code(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_short_child_said_is_there_when_its_end_is_told() {
    let spawner = spawner();
    for _ in 0..20 {
        let mut child = spawner.spawn(line(&["sh", "-c", "echo out; echo err >&2"])).await.unwrap();
        while !matches!(child.watch.event().await, ChildEvent::Gone { .. }) {}
        for (pipe, expected) in [(&child.stdout, "out\n"), (&child.stderr, "err\n")] {
            let mut said = [0; 64];
            let count = pipe.try_read(&mut said).unwrap();
            assert_eq!(std::str::from_utf8(&said[..count]), Ok(expected));
            assert_eq!(pipe.try_read(&mut said).unwrap(), 0, "and nothing comes after it");
        }
    }
    // Of one that goes on, the start is told without waiting for its end, and the pipes can be waited for.
    let mut child = spawner.spawn(line(&["sh", "-c", "sleep 0.2; echo late; sleep 300"])).await.unwrap();
    let mut said = [0; 64];
    assert_eq!(child.stdout.try_read(&mut said).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    child.stdout.readable().await.unwrap();
    assert_eq!(child.stdout.try_read(&mut said).unwrap(), 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn children_have_clean_signals_descriptors_and_a_group_of_their_own() {
    if !crate::parts::has_python() {
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
    assert_eq!(
        child.watch.event().await,
        ChildEvent::Gone { forced: false, expired: false, survivors: Vec::new() }
    );
    assert_eq!(handle.rss().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_that_forks_as_fast_as_it_can_is_killed() {
    if !crate::parts::has_python() {
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
    let ChildEvent::Gone { forced, survivors, .. } = child.watch.event().await else { panic!() };
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

/// Nobody tells the spawner to: a worker that was stopped could not.
#[tokio::test(flavor = "multi_thread")]
async fn a_child_is_killed_with_all_it_started_when_its_time_is_over() {
    let spawner = spawner();
    let directory = Directory::fresh();
    let pids = directory.0.join("pids");
    let text = format!(
        "echo $$ >> {0}; (setsid sh -c 'trap \"\" TERM; echo $$ >> {0}; while :; do sleep 300; done' &); while :; do sleep 300; done",
        pids.display()
    );
    let deadline = Moment::now().plus(Duration::from_millis(700));
    let mut child = spawner.spawn_until(line(&["sh", "-c", &text]), Some(deadline)).await.unwrap();
    let ChildEvent::Exited(exit) = child.watch.event().await else { panic!("it exits first") };
    assert_eq!(exit.end, Exit::Signal(9));
    assert!(deadline.is_over());
    let gone = ChildEvent::Gone { forced: true, expired: true, survivors: Vec::new() };
    assert_eq!(child.watch.event().await, gone);
    for pid in pids_in(&pids, 1).await {
        assert!(!is_alive(pid), "{pid}");
    }
    // Its time can be put off, and nothing is started whose time is over.
    let deadline = Moment::now().plus(Duration::from_millis(300));
    let mut child = spawner.spawn_until(line(&["sleep", "1"]), Some(deadline)).await.unwrap();
    child.watch.handle().extend(deadline.plus(Duration::from_secs(60)));
    let ChildEvent::Exited(exit) = child.watch.event().await else { panic!("it exits first") };
    assert_eq!(exit.end, Exit::Code(0));
    let late = spawner.spawn_until(line(&["true"]), Some(Moment::now())).await;
    assert!(matches!(late, Err(SpawnError::TooLate)), "{late:?}");
    assert_eq!(ended(&spawner, &["true"]).await.0, Exit::Code(0));
}

/// A spawner waits a moment before it tells of a start. If it hangs from then on, nobody knows of its child.
#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_was_never_told_of_is_killed_with_its_spawner() {
    let directory = Directory::fresh();
    // The child stops its spawner, and may come too late for that.
    for number in 0.. {
        assert!(number < 100, "the spawner always answered before its child could stop it");
        let (spawner, pids) = (spawner(), directory.0.join(format!("pids-{number}")));
        let text = format!("kill -STOP $PPID; echo $$ > {}; exec sleep 300", pids.display());
        let mut starting = spawner.begin(line(&["sh", "-c", &text]), None).unwrap();
        if tokio::time::timeout(Duration::from_millis(300), starting.answered()).await.is_ok() {
            for pid in spawner.pids() {
                let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
            }
            continue;
        }
        let pid = pids_in(&pids, 1).await[0];
        assert!(is_alive(pid));
        starting.abandon(Duration::from_millis(100)).await;
        eventually("the end of the child", || !is_alive(pid)).await;
        // The next child has a spawner that is well.
        assert_eq!(ended(&spawner, &["true"]).await.0, Exit::Code(0));
        return;
    }
}
