//! A process that dies between any two of its calls, and networks that lose, repeat and delay them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidemill_aws::{AwsOptions, Bus, Connection, create_table};
use tidemill_conformance::{Lab, ManualClock, TestWorld, side_by_side};
use tidemill_engine::backend::Backend;
use tidemill_engine::engine::JobRequest;
use tidemill_model::events::access_path::AccessPath;
use tidemill_model::{
    AppName, Event, JobId, JobStatus, Json, KnownType, RequestId, TaskId, TaskName, TaskOptions, TaskSpec,
    TenantId, Timestamp,
};

use crate::conformance::TableWorld;
use crate::double::{Double, RUNTIME, double, fresh_name};
use crate::proxy::{Fate, Proxy};
use crate::site::Site;

const LEASE_MILLIS: u64 = 60_000;

async fn open(endpoint: &str, name: &str, seed: u64, clock: &ManualClock) -> Lab<TableWorld> {
    open_with(endpoint, options(name, seed), clock).await
}

async fn open_with(endpoint: &str, options: AwsOptions, clock: &ManualClock) -> Lab<TableWorld> {
    let connection = Connection::to_double(endpoint).await;
    Lab::new(TableWorld::open(connection, options, clock.clone()).await, clock.clone())
}

fn options(name: &str, seed: u64) -> AwsOptions {
    AwsOptions {
        // Rows are written in the middle of it, too.
        flush_every: 3,
        follow_every: None,
        patience: Duration::from_millis(100),
        ..AwsOptions::new(name, name, Bus::Loopback, seed)
    }
}

/// `a` and `b`, then `c`. Asked for under the same name again and again, it is one job.
async fn submit(lab: &Lab<TableWorld>) -> JobId {
    let spec = |id: &str, depends_on: &[&str]| TaskSpec {
        task_id: TaskId::trusted(id),
        name: TaskName::trusted("n"),
        depends_on: depends_on.iter().map(|id| TaskId::trusted(id)).collect(),
        input: Json::empty_object(),
        options: TaskOptions::default(),
    };
    let request = JobRequest {
        tenant: TenantId::trusted("acme"),
        app: AppName::trusted("orders"),
        request: Some(RequestId::trusted("once")),
        name: None,
        budget: None,
        callback: None,
        tasks: vec![spec("a", &[]), spec("b", &[]), spec("c", &["a", "b"])],
        idempotency: None,
    };
    lab.engine.submit_job(request).await.expect("the job is accepted").job
}

fn output_of(task: &TaskId) -> String {
    format!(r#"{{"from":"{task}"}}"#)
}

/// Claims and completes until there is nothing left to do.
async fn run_to_the_end(lab: &Lab<TableWorld>) -> JobId {
    let job = submit(lab).await;
    while lab.status(job).await == JobStatus::Running {
        for task in lab.claim(9).await {
            // The process that wrote the outputs of the parents may be dead, and the table may not have them.
            let work = lab.engine.work_of(&task).await.expect("the outputs of the parents are found");
            let given: Vec<_> = task.spec.depends_on.iter().map(output_of).collect();
            let got: Vec<_> = work.dependency_outputs.iter().map(|(_, output)| output.as_str()).collect();
            assert_eq!(got, given, "of the parents of {}", task.spec.task_id);
            lab.complete(&task, &output_of(&task.spec.task_id)).await;
        }
        // Time passes until the lease of a process that died with a task has run out.
        lab.pass(LEASE_MILLIS);
    }
    job
}

/// The job has one end, each task has one, and the table tells the same as the heads.
async fn check(lab: &Lab<TableWorld>, job: JobId, what: &str) {
    assert_eq!(lab.status(job).await, JobStatus::Completed, "{what}");
    lab.world.backend().all_sent().await;
    lab.check_job(job).await;
    for (known, expected) in [
        (KnownType::JobCreated, 1),
        (KnownType::TaskPending, 3),
        (KnownType::TaskCompleted, 3),
        (KnownType::JobCompleted, 1),
    ] {
        assert_eq!(lab.count(known).await, expected, "{} {what}", known.as_str());
    }
    // When it was received the table says, not the log; and a bus may change the order of fields.
    let shape = |event: &Event| {
        let properties: serde_json::Value = event.properties.read().expect("it is JSON");
        (event.position(), event.entity.clone(), event.event_type.clone(), properties)
    };
    let told: Vec<_> = lab.events(AccessPath::Tenant).await.iter().map(shape).collect();
    let followed = lab.world.backend().follow(0, 1_000).await.expect("the log is read");
    let mut followed: Vec<_> = followed.into_iter().map(|(_, event)| event).collect();
    followed.sort_by_key(Event::position);
    let followed: Vec<_> = followed.iter().map(shape).collect();
    assert_eq!(told, followed, "{what}");
}

pub(crate) async fn fresh_table(double: &Double) -> String {
    let name = fresh_name();
    create_table(&double.connect().await, &name, &name).await.expect("the table is made");
    name
}

/// Waits for work, as a worker with a free place does, until no ticket is left.
async fn take_tickets(lab: &Lab<TableWorld>, site: &Site) {
    let waiting = async {
        loop {
            lab.engine.work_arrived(None).await;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let all_gone = async {
        while site.count(&site.tickets).await != (0, 0) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::select! {
        () = waiting => {}
        () = all_gone => {}
    }
}

/// Stores what is on the bus, as the function does.
async fn save_all(double: &Double, site: &Site) {
    let connection = double.connect().await;
    for event in site.drain(&site.events).await {
        let (detail, now) = (event["detail"].to_string(), Timestamp::clamped(1_800_000_000_000));
        tidemill_aws::save_event(&connection, &site.name, &detail, now).await.expect("it is stored");
    }
}

/// Kills a worker at one of its requests, and lets another finish.
async fn die_at(double: &Double, at: u64, fate: Fate) -> bool {
    let site = Site::new(double).await;
    let name = site.name.clone();
    let clock = ManualClock::default();
    let proxy =
        Proxy::start(&double.endpoint, move |number, _| if number == at { fate } else { Fate::Forward })
            .await;
    let on_bus = |seed| AwsOptions { bus: Bus::Named(site.bus.clone()), ..options(&name, seed) };
    let first = async {
        let queue_url = Some(site.tickets.clone());
        let options = AwsOptions { queue_url, takes_tickets: true, ..on_bus(1) };
        let lab = open_with(&proxy.endpoint, options, &clock).await;
        tokio::join!(run_to_the_end(&lab), async {
            lab.world.backend().own_sent().await;
            take_tickets(&lab, &site).await;
        });
        take_tickets(&lab, &site).await;
        lab.world.backend().flush().await.expect("the rows are written");
        lab.world.backend().all_sent().await;
    };
    let survived = tokio::select! {
        () = proxy.is_cut() => false,
        () = first => true,
    };
    let lab = open_with(&double.endpoint, on_bus(2), &clock).await;
    lab.pass(LEASE_MILLIS);
    let job = run_to_the_end(&lab).await;
    lab.world.backend().all_sent().await;
    save_all(double, &site).await;
    drop(lab);
    // No process that looks now holds any of it in memory.
    let last = open_with(&double.endpoint, on_bus(3), &clock).await;
    check(&last, job, &format!("after {fate:?} at request {at}")).await;
    survived
}

#[test]
fn whoever_dies_at_any_request_leaves_nothing_undone_and_nothing_twice() {
    let Some(double) = double() else { return };
    RUNTIME.block_on(async {
        for fate in [Fate::CutBefore, Fate::LastToArrive] {
            let mut at = 1;
            while !Box::pin(die_at(double, at, fate)).await {
                at += 1;
            }
            assert!(at > 20, "the process makes more than {at} requests");
            eprintln!("{fate:?}: died at {} requests, one after the other", at - 1);
        }
    });
}

#[test]
fn what_networks_do_changes_nothing() {
    let Some(double) = double() else { return };
    RUNTIME.block_on(async {
        for fate in [Fate::Throttle, Fate::LoseAnswer, Fate::LoseRequest, Fate::Double] {
            let name = fresh_table(double).await;
            let clock = ManualClock::default();
            let plan = move |number: u64, operation: &str| match operation {
                "PutItem" | "GetItem" | "UpdateItem" | "Query" if number.is_multiple_of(3) => fate,
                _ => Fate::Forward,
            };
            let proxy = Proxy::start(&double.endpoint, plan).await;
            let lab = open(&proxy.endpoint, &name, 1, &clock).await;
            let job = run_to_the_end(&lab).await;
            assert!(proxy.requests() > 20);
            check(&lab, job, &format!("with {fate:?}")).await;
        }
    });
}

/// Of every batch a part fails; what failed is done again, and what did not is not.
#[test]
fn batches_that_fail_in_part_are_completed() {
    let Some(double) = double() else { return };
    RUNTIME.block_on(async {
        let site = Site::new(double).await;
        let clock = ManualClock::default();
        let patience = Duration::from_secs(3_600);
        let counts = Arc::new(Mutex::new(BTreeMap::<String, u64>::new()));
        let counted = Arc::clone(&counts);
        let plan = move |_: u64, operation: &str| {
            if !["PutEvents", "SendMessageBatch", "BatchGetItem"].contains(&operation) {
                return Fate::Forward;
            }
            let mut counts = counted.lock().expect("nobody panicked");
            let count = counts.entry(operation.to_owned()).or_default();
            *count += 1;
            if *count % 2 == 1 { Fate::Part } else { Fate::Forward }
        };
        let proxy = Proxy::start(&double.endpoint, plan).await;
        let bus = Bus::Named(site.bus.clone());
        let queue_url = Some(site.tickets.clone());
        let options = |seed| AwsOptions {
            bus: bus.clone(),
            queue_url: queue_url.clone(),
            flush_every: 1_000,
            patience,
            ..options(&site.name, seed)
        };
        let lab = open_with(&proxy.endpoint, options(1), &clock).await;
        let job = run_to_the_end(&lab).await;
        lab.world.backend().all_sent().await;
        let committed = lab.events(AccessPath::Tenant).await;
        let sent = site.drain(&site.events).await;
        let id = |event: &serde_json::Value| {
            let now = tidemill_model::Timestamp::clamped(1_800_000_000_000);
            let event = tidemill_model::Event::from_detail(&event["detail"].to_string(), now);
            event.expect("it is an event").id.to_string()
        };
        let mut ids: Vec<_> = sent.iter().map(id).collect();
        ids.sort_unstable();
        let mut expected: Vec<_> = committed.iter().map(|event| event.id.to_string()).collect();
        expected.sort_unstable();
        assert_eq!(ids, expected, "each event once");
        assert_eq!(site.drain(&site.tickets).await.len(), 3, "each ticket once");
        // Another process reads the log in batches, of which a part is missing.
        let other = open_with(&proxy.endpoint, options(2), &clock).await;
        assert_eq!(other.status(job).await, JobStatus::Completed);
        let counts = counts.lock().expect("nobody panicked").clone();
        assert!(counts.values().all(|count| *count > 1) && counts.len() == 3, "{counts:?}");
    });
}

/// Tickets and events that come twice and in any order change nothing.
#[test]
fn deliveries_may_be_doubled_and_reordered() {
    let Some(double) = double() else { return };
    RUNTIME.block_on(async {
        let site = Site::new(double).await;
        let clock = ManualClock::default();
        let options = AwsOptions {
            bus: Bus::Named(site.bus.clone()),
            queue_url: Some(site.tickets.clone()),
            takes_tickets: true,
            patience: Duration::from_secs(3_600),
            ..options(&site.name, 1)
        };
        let plan = |_: u64, operation: &str| match operation {
            "PutEvents" | "SendMessageBatch" => Fate::Double,
            _ => Fate::Forward,
        };
        let proxy = Proxy::start(&double.endpoint, plan).await;
        let lab = open_with(&proxy.endpoint, options.clone(), &clock).await;
        let job = run_to_the_end(&lab).await;
        lab.world.backend().all_sent().await;
        assert_eq!(site.count(&site.tickets).await.0, 6, "each ticket came twice");
        take_tickets(&lab, &site).await;
        lab.check_job(job).await;
        let mut sent = site.drain(&site.events).await;
        let committed = lab.events(AccessPath::Tenant).await;
        assert_eq!(sent.len(), 2 * committed.len(), "each event came twice");
        sent.reverse();
        let connection = double.connect().await;
        for event in sent {
            let detail = event["detail"].to_string();
            let now = tidemill_model::Timestamp::clamped(1_800_000_000_000);
            tidemill_aws::save_event(&connection, &site.name, &detail, now).await.expect("it is stored");
        }
        drop(lab);
        let other = open_with(&double.endpoint, AwsOptions { seed: 2, ..options }, &clock).await;
        let ids = |events: &[tidemill_model::Event]| events.iter().map(|event| event.id).collect::<Vec<_>>();
        assert_eq!(ids(&other.events(AccessPath::Tenant).await), ids(&committed));
    });
}

/// Four processes claim and finish side by side; each task has one winner, and all see the same in the end.
#[test]
fn many_processes_share_one_store() {
    let Some(double) = double() else { return };
    RUNTIME.block_on(async {
        let name = fresh_table(double).await;
        let clock = ManualClock::default();
        let mut labs = Vec::new();
        for seed in 1..=4 {
            labs.push(open(&double.endpoint, &name, seed, &clock).await);
        }
        let jobs = side_by_side(labs.iter().map(submit)).await;
        assert!(jobs.iter().all(|job| *job == jobs[0]), "the same request makes one job: {jobs:?}");
        let done: Vec<usize> = side_by_side(labs.iter().map(|lab| work(lab, jobs[0]))).await;
        assert_eq!(done.iter().sum::<usize>(), 3, "{done:?}");
        for lab in &labs {
            lab.world.backend().all_sent().await;
        }
        check(&labs[3], jobs[0], "with four processes").await;
    });
}

/// Claims and completes one task after the other until the job is done, and tells how many.
async fn work(lab: &Lab<TableWorld>, job: JobId) -> usize {
    let mut done = 0;
    while lab.status(job).await == JobStatus::Running {
        for task in lab.claim(1).await {
            lab.complete(&task, "{}").await;
            done += 1;
        }
    }
    done
}
