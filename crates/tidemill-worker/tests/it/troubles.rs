//! What is wrong with the worker's machine costs no task an attempt.

use std::path::Path;

use rustix::process::{Pid, Signal, kill_process};
use tidemill_engine::commit::TaskKey;
use tidemill_model::{RetryPolicy, TaskOptions};

use crate::lab::{Lab, eventually, options, pids_in, shell};
use crate::tmpfs::Tmpfs;

const TELL: &str = r#"echo "{\"attempt\":$TIDEMILL_ATTEMPT}""#;

async fn submit(lab: &Lab, count: usize, text: &str) -> Vec<TaskKey> {
    let mut keys = Vec::new();
    for n in 0..count {
        keys.push(lab.submit(&format!("req-{n}"), "{}", options(&shell(text))).await);
    }
    keys
}

/// All are completed in their first attempt. How often they were given back.
async fn first_attempts(lab: &Lab, keys: &[TaskKey]) -> usize {
    let mut given_back = 0;
    for key in keys {
        let ended = lab.ended(key).await;
        assert_eq!(ended.output()["attempt"], 1, "{}: {:?}", key.request, ended.types());
        given_back += ended.count("Task Processing Failed");
    }
    given_back
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_output_directory_costs_no_attempt() {
    let mut lab = Lab::idle();
    let Some(disk) = Tmpfs::mount(lab.directory.0.join("small"), 1_024) else { return };
    let filler = disk.fill("filler", usize::MAX);
    lab.config.output_dir = disk.to_path_buf();
    // Not even its own directory can be made where there is no room for one; a tmpfs has some for names.
    lab.work("worker-1");
    let keys = submit(&lab, 40, &format!("echo said; {TELL}")).await;
    let meter = lab.config.slot_meter.clone();
    eventually("the trouble", || meter.read().troubled == 1).await;
    let told = "nothing is claimed: the output directory cannot be used";
    eventually("a word of it", || lab.shown().iter().any(|line| line.contains(told))).await;
    eventually("a second look", || lab.shown().iter().any(|line| line.contains("nothing was claimed for")))
        .await;
    assert!(lab.shown().iter().any(|line| line.contains("No space left on device")), "{:?}", lab.shown());
    let before = lab.engine.metrics().await.unwrap().work.attempts_released;
    assert!(before <= 3 * lab.config.slots as u64, "claims go on and on: {before}");
    std::fs::remove_file(filler).unwrap();
    let given_back = first_attempts(&lab, &keys).await;
    assert!(given_back >= 1);
    assert_eq!(meter.read().troubled, 0);
    assert_eq!(
        lab.blob(&keys[0], "r1-a1/logs/output.log").await.map(|log| log.starts_with(b"said")),
        Some(true)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_fills_up_below_running_tasks_costs_no_attempt() {
    let mut lab = Lab::idle();
    let Some(disk) = Tmpfs::mount(lab.directory.0.join("small"), 1_024) else { return };
    lab.config.output_dir = disk.to_path_buf();
    lab.work("worker-1");
    let (pids, go) = (lab.directory.0.join("pids"), lab.directory.0.join("go"));
    let text = format!(
        "echo $$ >> {}; while [ ! -e {} ]; do sleep 0.02; done
         head -c 9000 /dev/zero > $TIDEMILL_OUTPUT_DIR/artifacts/file || exit 1; echo said; {TELL}",
        pids.display(),
        go.display()
    );
    let keys = submit(&lab, 3, &text).await;
    pids_in(&pids, 3).await;
    let filler = disk.fill("filler", usize::MAX);
    std::fs::write(&go, "").unwrap();
    let meter = lab.config.slot_meter.clone();
    eventually("the trouble", || meter.read().troubled == 1).await;
    std::fs::remove_file(filler).unwrap();
    assert!(first_attempts(&lab, &keys).await >= 1);
    for key in &keys {
        let log = lab.blob(key, "r1-a1/logs/output.log").await.unwrap();
        assert!(log.starts_with(b"said"), "{}", String::from_utf8_lossy(&log));
    }
}

/// What was said while there was no room is in the log all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_log_waits_for_room() {
    let mut lab = Lab::idle();
    let Some(disk) = Tmpfs::mount(lab.directory.0.join("small"), 1_024) else { return };
    lab.config.output_dir = disk.to_path_buf();
    lab.work("worker-1");
    let (pids, dir) = (lab.directory.0.join("pids"), lab.directory.0.display().to_string());
    let wait = |name: &str| format!("while [ ! -e {dir}/{name} ]; do sleep 0.02; done");
    let text = format!(
        "echo $$ >> {}; {}; echo in need; {}; echo later; {TELL}",
        pids.display(),
        wait("go"),
        wait("on")
    );
    let keys = submit(&lab, 1, &text).await;
    pids_in(&pids, 1).await;
    let filler = disk.fill("filler", usize::MAX);
    std::fs::write(lab.directory.0.join("go"), "").unwrap();
    eventually("a line", || lab.shown().iter().any(|line| line.contains("the log cannot be written"))).await;
    std::fs::remove_file(filler).unwrap();
    std::fs::write(lab.directory.0.join("on"), "").unwrap();
    first_attempts(&lab, &keys).await;
    let log = lab.blob(&keys[0], "r1-a1/logs/output.log").await.unwrap();
    assert_eq!(String::from_utf8_lossy(&log), "in need\nlater\n{\"attempt\":1}\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn spawners_that_are_killed_again_and_again_cost_no_attempt() {
    let lab = Lab::working();
    let keys = submit(&lab, 12, &format!("sleep 0.3; {TELL}")).await;
    for _ in 0..2 {
        let spawners = lab.spawner.pids();
        for pid in &spawners {
            // One that is gone already was of the round before.
            let _ = kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), Signal::KILL);
        }
        eventually("another one", || lab.spawner.pids().iter().all(|pid| !spawners.contains(pid))).await;
    }
    first_attempts(&lab, &keys).await;
}

/// A task that kills its spawner each time is to blame for it, and does not go on for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_kills_its_spawner_fails_in_the_end() {
    let lab = Lab::working();
    let retry = RetryPolicy { max_attempts: 1, ..RetryPolicy::default() };
    let deadly = TaskOptions { retry: Some(retry), ..options(&shell("kill -9 $PPID; sleep 300")) };
    let deadly = lab.submit("deadly", "{}", deadly).await;
    let ended = lab.ended(&deadly).await;
    assert_eq!(ended.types().last(), Some(&"Task Failed"));
    let counted: Vec<_> = ended
        .events
        .iter()
        .filter(|event| event.event_type.as_str() == "Task Processing Failed")
        .map(|event| event.properties.read::<serde_json::Value>().unwrap()["counted"].clone())
        .collect();
    assert_eq!(counted.iter().filter(|counted| **counted == false).count(), 3, "{counted:?}");
    lab.run("next", &shell(TELL)).await.output();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_output_directory_that_was_removed_is_made_again() {
    let lab = Lab::working();
    lab.run("first", &shell(TELL)).await.output();
    let output: &Path = &lab.config.output_dir;
    std::fs::remove_dir_all(output).unwrap();
    let ended = lab.run("second", &shell(TELL)).await;
    assert_eq!(ended.output()["attempt"], 1);
    assert_eq!(ended.count("Task Processing Failed"), 0, "{:?}", ended.types());
}
