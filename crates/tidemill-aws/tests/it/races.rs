//! Processes that put into the same log at the same time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tidemill_aws::{AwsOptions, Bus, Connection};
use tidemill_conformance::{Lab, ManualClock, TestWorld};
use tidemill_engine::engine::{Engine, EngineConfig, JobRequest};
use tidemill_model::{
    AppName, JobId, JobStatus, Json, KnownType, TaskId, TaskName, TaskOptions, TaskSpec, TenantId,
};

use crate::conformance::TableWorld;
use crate::crashes::fresh_table;
use crate::double::{RUNTIME, double};
use crate::proxy::{Fate, Proxy};

/// A process with ids of its own.
async fn open(endpoint: &str, name: &str, seed: u64, clock: &ManualClock) -> Lab<TableWorld> {
    let connection = Connection::to_double(endpoint).await;
    let options = AwsOptions { follow_every: None, ..AwsOptions::new(name, name, Bus::Loopback, seed) };
    let world = TableWorld::open(connection, options, clock.clone()).await;
    let engine = Engine::new(world.backend(), clock.clone(), seed, EngineConfig::default());
    Lab { world, engine, clock: clock.clone() }
}

/// Tasks that stand beside each other.
fn many(count: usize) -> String {
    (0..count).map(|number| format!("t{number}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_lost_race_costs_few_requests_however_much_lives() {
    const LIVE: usize = 150;
    let Some(double) = double() else { return };
    RUNTIME.block_on(async {
        let name = fresh_table(double).await;
        let clock = ManualClock::default();
        let proxy = Proxy::start(&double.endpoint, |_, _| Fate::Forward).await;
        let fast = open(&double.endpoint, &name, 1, &clock).await;
        let slow = open(&proxy.endpoint, &name, 2, &clock).await;
        // Jobs of their own, so that each lies in rows of its own.
        for _ in 0..LIVE / 10 {
            fast.submit(&many(10)).await;
        }
        fast.world.backend().flush().await.expect("the rows are written");
        assert_eq!(slow.claim(2).await.len(), 2, "it has seen what the other did");

        // It does not know of this one when it decides.
        fast.submit("x").await;
        slow.world.backend().own_sent().await;
        let before = proxy.requests();
        let (first, second) = tokio::join!(slow.claim(1), slow.claim(1));
        assert_eq!((first.len(), second.len()), (1, 1));
        assert_ne!(first[0].task, second[0].task);
        slow.world.backend().own_sent().await;
        let requests = proxy.requests() - before;
        eprintln!("{requests} requests for a group of two that lost a race, with {LIVE} live tasks");
        assert!(requests < 20, "{requests} requests");
    });
}

#[test]
fn opening_takes_few_requests_for_much_that_lives() {
    const JOBS: usize = 12;
    let Some(double) = double() else { return };
    RUNTIME.block_on(async {
        let name = fresh_table(double).await;
        let clock = ManualClock::default();
        let before = open(&double.endpoint, &name, 1, &clock).await;
        for _ in 0..JOBS {
            before.submit(&many(30)).await;
        }
        before.world.backend().flush().await.expect("the rows are written");
        let proxy = Proxy::start(&double.endpoint, |_, _| Fate::Forward).await;
        let again = open(&proxy.endpoint, &name, 2, &clock).await;
        let requests = proxy.requests();
        eprintln!("{requests} requests to open a store with {JOBS} jobs and {} messages", JOBS * 30);
        // Two for each job, one for a hundred messages, and a dozen for the rest.
        assert!(requests < 2 * JOBS as u64 + 4 + 12, "{requests}");
        let mut claimed = 0;
        loop {
            let some = again.claim(100).await.len();
            claimed += some;
            if some == 0 {
                break;
            }
        }
        assert_eq!(claimed, JOBS * 30);
    });
}

#[test]
fn nobody_starves_beside_one_that_always_has_something_to_commit() {
    const ROUNDS: usize = 12;
    let Some(double) = double() else { return };
    RUNTIME.block_on(async {
        let name = fresh_table(double).await;
        let clock = ManualClock::default();
        let busy = open(&double.endpoint, &name, 1, &clock).await;
        let other = open(&double.endpoint, &name, 2, &clock).await;
        let (is_done, submitted) = (AtomicBool::new(false), AtomicU64::new(0));
        let hammer = async || {
            while !is_done.load(Ordering::Relaxed) {
                busy.submit("a").await;
                submitted.fetch_add(1, Ordering::Relaxed);
            }
        };
        let patient = async {
            for _ in 0..ROUNDS {
                other.submit("b").await;
            }
            is_done.store(true, Ordering::Relaxed);
        };
        tokio::join!(patient, hammer(), hammer(), hammer());
        let (by_busy, by_other) = (submitted.into_inner(), ROUNDS as u64);
        eprintln!("{by_busy} commits beside {by_other}");
        assert!(by_busy < by_other * 60, "{by_other} commits had to wait for {by_busy} others");
    });
}

/// Claims and completes three at a time, so that a group holds several commits when it loses.
async fn work(lab: &Lab<TableWorld>, job: JobId) -> usize {
    let mut done = 0;
    while lab.status(job).await == JobStatus::Running {
        let tasks = lab.claim(3).await;
        done += tasks.len();
        tidemill_conformance::side_by_side(tasks.iter().map(|task| lab.complete(task, "{}"))).await;
    }
    done
}

#[test]
fn groups_that_lose_are_decided_again() {
    const TASKS: usize = 20;
    let Some(double) = double() else { return };
    RUNTIME.block_on(async {
        let name = fresh_table(double).await;
        let clock = ManualClock::default();
        let mut labs = Vec::new();
        for seed in 1..=3 {
            labs.push(open(&double.endpoint, &name, seed, &clock).await);
        }
        let job = labs[0].submit(&format!("{} end<t0+t1+t2", many(TASKS - 1))).await;
        let done: Vec<usize> =
            tidemill_conformance::side_by_side(labs.iter().map(|lab| work(lab, job))).await;
        assert_eq!(done.iter().sum::<usize>(), TASKS, "{done:?}");
        for lab in &labs {
            lab.world.backend().own_sent().await;
        }
        for lab in &labs {
            lab.check_job(job).await;
            assert_eq!(lab.count(KnownType::TaskCompleted).await, TASKS);
            assert_eq!(lab.count(KnownType::JobCompleted).await, 1);
        }
    });
}

/// A group takes in what fits. Nobody is refused for what others sent at the same moment.
#[test]
fn large_requests_at_once_are_all_taken() {
    const JOBS: usize = 6;
    let Some(double) = double() else { return };
    RUNTIME.block_on(async {
        let name = fresh_table(double).await;
        let (connection, clock) = (double.connect().await, ManualClock::default());
        let options = AwsOptions {
            follow_every: None,
            group_bytes_max: 64_000,
            ..AwsOptions::new(&*name, &*name, Bus::Loopback, 1)
        };
        let lab = Lab::new(TableWorld::open(connection, options, clock.clone()).await, clock);
        let spec = |at: usize| TaskSpec {
            task_id: TaskId::trusted(&format!("t-{at}")),
            name: TaskName::trusted("n"),
            depends_on: if at == 0 { Vec::new() } else { vec![TaskId::trusted("t-0")] },
            input: Json::trusted(&format!(r#"{{"text":"{}"}}"#, "x".repeat(1_500))),
            options: TaskOptions::default(),
        };
        let submit = |tasks: usize| {
            let request = JobRequest {
                tenant: TenantId::trusted("acme"),
                app: AppName::trusted("orders"),
                request: None,
                name: None,
                budget: None,
                callback: None,
                tasks: (0..tasks).map(spec).collect(),
                idempotency: None,
            };
            let engine = lab.engine.clone();
            tokio::spawn(async move { engine.submit_job(request).await })
        };
        let submitted: Vec<_> = (0..JOBS).map(|_| submit(10)).collect();
        for job in submitted {
            job.await.expect("it does not panic").expect("each of them fits");
        }
        let alone = submit(50).await.expect("it does not panic").expect_err("it does not fit into any group");
        assert!(alone.to_string().contains("the limit is 64000"), "{alone}");
        let other = open(&double.endpoint, &name, 2, &ManualClock::default()).await;
        let found = other.engine.jobs(TenantId::trusted("acme"), None, None, 10).await.expect("it answers");
        assert_eq!(found.len(), JOBS);
    });
}
