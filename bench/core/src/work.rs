//! Jobs and workers without processes: claim, finish, next claim.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use tidemill_embedded::Embedded;
use tidemill_engine::backend::Backend;
use tidemill_engine::command::{Claim, Command, Finish, Prepared, Report, Spent, SubmitJob};
use tidemill_engine::commit::NewJob;
use tidemill_engine::reply::{Assignment, Reply};
use tidemill_model::{
    AppName, EventId, JobId, Json, Owner, RequestId, TaskId, TaskName, TaskOptions, TaskSpec, TenantId,
    Timestamp, WorkerId,
};

/// A job's tasks, as dependencies by index.
pub fn tasks(count: usize, depends_on: impl Fn(usize) -> Vec<usize>) -> Vec<Arc<TaskSpec>> {
    let ids: Vec<TaskId> = (0..count).map(|index| TaskId::new(format!("task-{index:06}")).unwrap()).collect();
    let name = TaskName::new("noop").unwrap();
    (0..count)
        .map(|index| {
            Arc::new(TaskSpec {
                task_id: ids[index].clone(),
                name: name.clone(),
                depends_on: depends_on(index).into_iter().map(|parent| ids[parent].clone()).collect(),
                input: Json::empty_object(),
                options: TaskOptions::default(),
            })
        })
        .collect()
}

/// A submission with ids of its own. `Job Created` lists the tasks, as the engine's does for small jobs.
pub fn submission(tenant: &TenantId, app: &AppName, tasks: &[Arc<TaskSpec>]) -> Command {
    let job = new_job_id();
    let listed = if tasks.len() <= 500 { tasks } else { &tasks[..0] };
    let created = serde_json::json!({ "jobId": job.to_string(), "tasks": listed, "totalTasks": tasks.len() });
    Command::SubmitJob(SubmitJob {
        job: NewJob {
            tenant: tenant.clone(),
            app: app.clone(),
            job,
            request: RequestId::new(format!("req-{:032x}", job.as_u128())).unwrap(),
            name: None,
            created_at: Timestamp::MIN,
            tasks: tasks.to_vec(),
        },
        created: Prepared { id: None, properties: Json::of(&created) },
        once: Vec::new(),
        budget: None,
        callback: None,
    })
}

fn new_job_id() -> JobId {
    static LAST: AtomicU64 = AtomicU64::new(0);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let count = LAST.fetch_add(1, Ordering::Relaxed);
    let high = (now.as_millis() & 0xffff_ffff_ffff) << 80 | 0x7 << 76;
    let low = u128::from(std::process::id()) << 40 | u128::from(count);
    JobId::mint(EventId::from_u128(high | 0b10 << 62 | low))
}

/// One worker's commands.
pub struct Hand {
    worker: WorkerId,
    claim: Claim,
}

impl Hand {
    pub fn new(number: usize, max: usize) -> Self {
        let name = format!("worker-{number}");
        let worker = WorkerId::new(&name).unwrap();
        let owner = Owner { worker: name.into(), generation: Some(1) };
        Self { claim: Claim { owner, worker: worker.clone(), max, tenants: None, begin: Some(1) }, worker }
    }

    pub fn claim(&self) -> Command {
        Command::Claim(self.claim.clone())
    }

    pub fn finish(&self, task: &Assignment) -> Command {
        Command::Finish(Finish {
            task: task.task.clone(),
            fence: task.fence,
            worker: self.worker.clone(),
            report: Report::Completed {
                output: Some(Json::empty_object()),
                overflow: None,
                duration_millis: 1,
                exit_code: 0,
                artifacts: Vec::new(),
            },
            spent: Spent::default(),
            cause: None,
            digest: 0,
        })
    }
}

/// The tasks of the last answer, which must be a claim's.
pub fn claimed(answers: Vec<tidemill_engine::backend::Answer>) -> Vec<Assignment> {
    let mut last = None;
    for answer in answers {
        last = Some(answer.expect("no command is refused"));
    }
    match last {
        Some(Reply::Claimed { tasks, .. }) => tasks,
        other => panic!("a claim was answered with {other:?}"),
    }
}

/// Completes `total` tasks with this many blocking workers.
pub fn drain(backend: &Arc<Embedded>, workers: usize, total: u64) {
    let gate = Gate::new(total);
    std::thread::scope(|scope| {
        for number in 0..workers {
            let (backend, gate) = (Arc::clone(backend), Arc::clone(&gate));
            scope.spawn(move || {
                let hand = Hand::new(number, 1);
                let mut commands = vec![hand.claim()];
                loop {
                    let finishing = commands.len() > 1;
                    let tasks = claimed(backend.execute_blocking(&commands).expect("the store works"));
                    if finishing {
                        gate.count();
                    }
                    match tasks.first() {
                        Some(task) => commands = vec![hand.finish(task), hand.claim()],
                        None if gate.is_open() => return,
                        None => {
                            pollster::block_on(gate.or(backend.work(None)));
                            commands = vec![hand.claim()];
                        }
                    }
                }
            });
        }
    });
}

/// Opens when everything is counted, and then wakes the workers that wait for work.
pub struct Gate {
    left: AtomicU64,
    open: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl Gate {
    pub fn new(total: u64) -> Arc<Self> {
        Arc::new(Self {
            left: AtomicU64::new(total),
            open: AtomicBool::new(total == 0),
            waiting: Mutex::default(),
        })
    }

    pub fn count(&self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            let mut waiting = self.waiting.lock().unwrap();
            self.open.store(true, Ordering::Release);
            waiting.drain(..).for_each(Waker::wake);
        }
    }

    pub fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// Waits for `future` or for the gate.
    pub async fn or(&self, future: impl Future<Output = ()>) {
        let mut future = pin!(future);
        let mut registered = false;
        std::future::poll_fn(|context: &mut Context<'_>| {
            if future.as_mut().poll(context).is_ready() || self.is_open() {
                return Poll::Ready(());
            }
            if !registered {
                let mut waiting = self.waiting.lock().unwrap();
                if self.is_open() {
                    return Poll::Ready(());
                }
                waiting.push(context.waker().clone());
                registered = true;
            }
            Poll::Pending
        })
        .await;
    }
}
