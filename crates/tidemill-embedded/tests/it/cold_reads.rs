//! Finished work that has left memory reads as it did before, and is not brought back to be looked at.

use std::sync::Arc;

use tidemill_conformance::block_on;
use tidemill_embedded::Embedded;
use tidemill_engine::clock::SystemClock;
use tidemill_engine::command::{AddTasks, Cancel, Command, Listed};
use tidemill_engine::commit::TaskKey;
use tidemill_engine::reads::Reads as _;
use tidemill_engine::reply::{Refusal, Reply};
use tidemill_model::{JobId, TaskId};

use crate::lab::{Fresh, Lab, acme, claim, complete, json, small, spec, submit_job};

fn tasks(count: usize, chained: bool) -> Vec<tidemill_model::TaskSpec> {
    let parent = |n: usize| if chained && n > 0 { vec![format!("t{}", n - 1)] } else { Vec::new() };
    let spec_of = |n: usize| {
        let parents = parent(n);
        spec(&format!("t{n}"), &parents.iter().map(String::as_str).collect::<Vec<_>>())
    };
    (0..count).map(spec_of).collect()
}

fn cancel(job: JobId) -> Command {
    Command::Cancel(Cancel { tenant: acme(), job, by: "test".into(), reason: None })
}

#[test]
fn stored_tasks_read_as_they_did_in_memory() {
    let dir = Fresh::new();
    let backend = Embedded::open(&dir, small(), Arc::new(SystemClock::start())).unwrap();
    let (done, cancelled) = (JobId::from_u128(1), JobId::from_u128(2));
    backend.execute_blocking(&[submit_job(done, tasks(150, false), None)]).unwrap();
    loop {
        let answer = backend.execute_blocking(&[claim(64, 1)]).unwrap().remove(0);
        let Ok(Reply::Claimed { tasks, .. }) = answer else { panic!("{answer:?}") };
        if tasks.is_empty() {
            break;
        }
        let finished: Vec<_> = tasks.iter().map(|task| complete(task, "{}")).collect();
        backend.execute_blocking(&finished).unwrap();
    }
    backend.execute_blocking(&[submit_job(cancelled, tasks(150, true), None), cancel(cancelled)]).unwrap();
    let look = || {
        let mut seen = Vec::new();
        for job in [done, cancelled] {
            for (from, limit) in [(0, 1_000), (0, 1), (60, 10), (63, 2), (149, 5), (150, 5), (500, 5)] {
                seen.push(block_on(backend.job_tasks(acme(), job, from, limit)).unwrap());
            }
            for n in [0, 63, 64, 149] {
                let request = job.request_id(&TaskId::new(format!("t{n}")).unwrap());
                let task = block_on(backend.task(TaskKey { tenant: acme(), request })).unwrap();
                seen.push(vec![task.unwrap()]);
            }
            let request = job.request_id(&TaskId::new("none").unwrap());
            assert!(block_on(backend.task(TaskKey { tenant: acme(), request })).unwrap().is_none());
        }
        seen
    };
    let before = look();
    backend.checkpoint().unwrap();
    assert_eq!(look(), before);
}

#[test]
fn a_job_at_rest_stays_out_of_memory_when_its_head_is_enough() {
    let dir = Fresh::new();
    let mut lab = Lab::open(&dir);
    let (done, cancelled) = (JobId::from_u128(1), JobId::from_u128(2));
    lab.run(submit_job(done, tasks(3, false), None)).unwrap();
    lab.work_off();
    lab.run(submit_job(cancelled, tasks(3, false), None)).unwrap();
    lab.run(cancel(cancelled)).unwrap();
    lab.store.flush_rows().unwrap();
    assert_eq!(lab.store.state().jobs().count(), 0);
    let add = |job: JobId| {
        let (tasks, listed) = (Arc::new(vec![Arc::new(spec("x", &[]))]), Listed::Inline(json("[]")));
        Command::AddTasks(AddTasks { tenant: acme(), job, tasks, listed })
    };
    assert_eq!(lab.run(cancel(done)), Err(Refusal::JobCompleted(done)));
    assert_eq!(lab.run(cancel(cancelled)), Ok(Reply::Cancelled { tasks: Vec::new() }));
    assert_eq!(lab.run(add(done)), Err(Refusal::JobCompleted(done)));
    assert_eq!(lab.run(add(cancelled)), Err(Refusal::JobCancelled(cancelled)));
    assert_eq!(lab.store.state().jobs().count(), 0, "none was loaded");
}
