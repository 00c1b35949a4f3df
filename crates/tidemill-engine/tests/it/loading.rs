//! What becomes of a claimed task before it runs: it is loaded, failed or given back.

use std::sync::Arc;

use tidemill_conformance::{ManualClock, block_on};
use tidemill_engine::Engine;
use tidemill_engine::engine::{Claimant, EngineConfig, TaskRequest};
use tidemill_engine::memory::MemoryBackend;
use tidemill_engine::policy::Policy;
use tidemill_engine::reply::Assignment;
use tidemill_model::{
    AppName, Json, Outcome, Pinned, RequestId, Runner, RunnerSpec, TaskName, TaskOptions, TaskState,
    TenantId, WorkerId,
};

struct Desk {
    engine: Engine<MemoryBackend<ManualClock>>,
    clock: ManualClock,
    worker: WorkerId,
}

impl Desk {
    fn new() -> Self {
        let clock = ManualClock::default();
        let backend = MemoryBackend::new(clock.clone(), Policy::default(), 1);
        let engine = Engine::new(Arc::new(backend), clock.clone(), 2, EngineConfig::default());
        Self { engine, clock, worker: WorkerId::trusted("worker-i-001") }
    }

    /// Submits a task and claims it.
    fn claimed(&self, id: &str, execution: Option<&RunnerSpec>) -> Assignment {
        let request = TaskRequest {
            tenant: TenantId::trusted("acme"),
            app: AppName::trusted("orders"),
            request: Some(RequestId::trusted(id)),
            name: TaskName::trusted("work"),
            input: Json::parse(r#"{"n":1}"#.to_owned()).unwrap(),
            options: TaskOptions { execution: execution.map(Json::of), ..TaskOptions::default() },
            idempotency: None,
        };
        block_on(self.engine.submit_task(request)).unwrap();
        self.claim().expect("it was submitted")
    }

    fn claim(&self) -> Option<Assignment> {
        self.clock.advance(1);
        let worker = self.worker.clone();
        let request = Claimant { worker, generation: None, max: 1, tenants: None, begin: None };
        block_on(self.engine.claim(request)).unwrap().tasks.pop()
    }

    fn state(&self, task: &Assignment) -> TaskState {
        let snapshot = block_on(self.engine.task(task.task.clone())).unwrap();
        snapshot.unwrap().head.unwrap().state
    }
}

#[test]
fn a_task_is_loaded_with_its_execution_and_its_input() {
    let desk = Desk::new();
    let task = desk.claimed("plain", None);
    let loaded = block_on(desk.engine.load_task(&task, &desk.worker)).unwrap().unwrap();
    assert_eq!((loaded.execution.runner, loaded.work.input.as_str()), (Runner::Native, r#"{"n":1}"#));
    assert_eq!(loaded.assignment, task);
}

#[test]
fn a_task_whose_definition_is_not_there_fails_at_once() {
    let desk = Desk::new();
    let pinned = Pinned { name: TaskName::trusted("work"), version: 9 };
    let execution = RunnerSpec { definition: Some(pinned), ..RunnerSpec::default() };
    let task = desk.claimed("pinned", Some(&execution));
    assert_eq!(block_on(desk.engine.load_task(&task, &desk.worker)).unwrap(), None);
    assert_eq!(desk.state(&task), TaskState::Done(Outcome::Failed));
    assert_eq!(desk.claim(), None, "what is not found is not tried again");
}

#[test]
fn a_task_that_is_given_back_is_claimed_again_without_a_count() {
    let desk = Desk::new();
    let task = desk.claimed("unwanted", None);
    block_on(desk.engine.give_back(std::slice::from_ref(&task), &desk.worker, None));
    let again = desk.claim().expect("others may take it at once");
    assert_eq!((again.run, again.attempt), (task.run, task.attempt));
    assert!(again.fence > task.fence);
    // The worker that had it before cannot give it back any more.
    block_on(desk.engine.give_back(&[task], &desk.worker, None));
    assert_eq!(desk.claim(), None);
}
