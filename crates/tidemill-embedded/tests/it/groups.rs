//! Groups: what reaches the disk together stays within bounds, and what goes wrong in one stops nothing else.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};

use tidemill_conformance::block_on;
use tidemill_embedded::log::LogConfig;
use tidemill_embedded::{Embedded, StoreOptions};
use tidemill_engine::backend::{Answer, Backend, Fault};
use tidemill_engine::clock::SystemClock;
use tidemill_engine::command::{AddTasks, Command, Listed};
use tidemill_engine::policy::Policy;
use tidemill_engine::reply::Refusal;
use tidemill_model::JobId;

use crate::lab::{Fresh, acme, json, small, spec, submit_job, submit_task};

fn open(dir: &Fresh, options: StoreOptions) -> Embedded {
    Embedded::open(dir, options, Arc::new(SystemClock::start())).unwrap()
}

type Execution<'a> = Pin<Box<dyn Future<Output = Result<Vec<Answer>, Fault>> + 'a>>;

#[test]
fn many_large_commands_at_once_make_groups_that_fit() {
    let dir = Fresh::new();
    let log = LogConfig { segment_bytes: 256 << 10, hasty_segment_bytes: 256 << 10, ..small().log };
    let backend = open(&dir, StoreOptions { log, ..small() });
    let input = format!(r#"{{"x":"{}"}}"#, "y".repeat(100 << 10));
    let mut executions: Vec<Execution<'_>> = (0..60)
        .map(|n| Box::pin(backend.execute(vec![submit_task(&format!("r-{n}"), &input)])) as Execution<'_>)
        .collect();
    // All of them come before the first is on disk, as far as the writer's thread is slow to start.
    let mut context = Context::from_waker(Waker::noop());
    executions.retain_mut(|execution| execution.as_mut().poll(&mut context).is_pending());
    for execution in executions {
        assert!(block_on(execution).unwrap().remove(0).is_ok());
    }
    drop(backend);
    let files = std::fs::read_dir(dir.join("log")).unwrap().map(Result::unwrap);
    let largest = files.map(|file| file.metadata().unwrap().len()).max().unwrap();
    assert!(largest <= log.segment_bytes, "a segment of {largest} bytes had to be made for a group");
    let backend = open(&dir, StoreOptions { log, ..small() });
    let messages = block_on(backend.look(|state| state.queue().len())).unwrap();
    assert_eq!(messages, 60);
}

#[test]
fn a_job_grows_up_to_its_limit_and_no_further() {
    let dir = Fresh::new();
    let policy = Policy { job_bytes_max: 4_000, ..Policy::default() };
    let backend = open(&dir, StoreOptions { policy, ..small() });
    let job = JobId::from_u128(1);
    backend.execute_blocking(&[submit_job(job, vec![spec("a", &[])], None)]).unwrap();
    let add = |n: usize| {
        let mut task = spec(&format!("b{n}"), &["a"]);
        task.input = json(&format!(r#"{{"x":"{}"}}"#, "y".repeat(1_000)));
        let listed = Listed::Inline(json("[]"));
        let add = AddTasks { tenant: acme(), job, tasks: Arc::new(vec![Arc::new(task)]), listed };
        backend.execute_blocking(&[Command::AddTasks(add)]).unwrap().remove(0)
    };
    for n in 0..3 {
        add(n).unwrap();
    }
    let refused = add(3);
    assert!(
        matches!(refused, Err(Refusal::TooLarge { field: "tasks", limit_bytes: 4_000, .. })),
        "{refused:?}"
    );
    backend.execute_blocking(&[submit_task("still", "{}")]).unwrap().remove(0).unwrap();
}

#[cfg(debug_assertions)]
#[test]
fn a_decision_that_panics_stops_the_store() {
    let dir = Fresh::new();
    let backend = open(&dir, small());
    let twice = submit_job(JobId::from_u128(1), vec![spec("a", &[])], None);
    backend.execute_blocking(std::slice::from_ref(&twice)).unwrap();
    // What a decision relies on does not hold: no caller that mints its ids gets there.
    let panicked =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| backend.execute_blocking(&[twice])));
    assert!(panicked.is_err());
    let answer = backend.execute_blocking(&[submit_task("t", "{}")]);
    assert!(matches!(answer, Err(Fault::Stopped(_))), "{answer:?}");
    drop(backend);
    let backend = open(&dir, small());
    backend.execute_blocking(&[submit_task("t", "{}")]).unwrap().remove(0).unwrap();
}
