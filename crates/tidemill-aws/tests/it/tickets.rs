//! The life of tickets, from the queue to a worker and back.

use std::sync::Arc;
use std::time::Duration;

use tidemill_aws::handlers::{QueueEvent, Reconciled, dead_tickets, reconcile};
use tidemill_aws::{Aws, AwsOptions, TicketOptions};
use tidemill_engine::engine::{AttemptReport, Claimant, Engine, HeartbeatReport, TaskRequest, WorkReport};
use tidemill_engine::reply::Assignment;
use tidemill_model::{AppName, Json, RequestId, TaskName, TaskOptions, TenantId, WorkerId};

use crate::double::Double;
use crate::proxy::{Fate, Proxy};
use crate::site::{LEASE_MILLIS, Site};

fn tenant() -> TenantId {
    TenantId::trusted("acme")
}

fn worker_id() -> WorkerId {
    WorkerId::trusted("w")
}

async fn submit(engine: &Engine<Aws>, request: &str) {
    let request = TaskRequest {
        tenant: tenant(),
        app: AppName::trusted("orders"),
        request: Some(RequestId::trusted(request)),
        name: TaskName::trusted("n"),
        input: Json::empty_object(),
        options: TaskOptions::default(),
        idempotency: None,
    };
    engine.submit_task(request).await.expect("the task is accepted");
    engine.backend().own_sent().await;
}

async fn claim(engine: &Engine<Aws>) -> Vec<Assignment> {
    let request = Claimant { worker: worker_id(), generation: None, max: 9, tenants: None, begin: Some(1) };
    let claimed = engine.claim(request).await.expect("the claim is answered").tasks;
    engine.backend().own_sent().await;
    claimed
}

/// Waits for work as workers do, until there is some.
async fn wait_and_claim(engine: &Engine<Aws>) -> Vec<Assignment> {
    let wait = async {
        loop {
            let claimed = claim(engine).await;
            if !claimed.is_empty() {
                return claimed;
            }
            engine.work_arrived(None).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait).await.expect("a ticket comes in time")
}

async fn finish(engine: &Engine<Aws>, task: &Assignment) {
    let report = WorkReport::completed(Json::empty_object(), 1);
    engine.finish(AttemptReport::of(task, worker_id(), report)).await.expect("the outcome is taken");
    engine.backend().own_sent().await;
}

async fn beat(engine: &Engine<Aws>, task: &Assignment) {
    let request = HeartbeatReport {
        task: task.task.clone(),
        fence: task.fence,
        worker: worker_id(),
        process_id: 1,
        rss: 1,
        last_activity: None,
    };
    engine.heartbeat(request).await.expect("the lease is renewed");
    engine.backend().own_sent().await;
}

async fn a_ticket_is_taken_extended_and_deleted(double: &Double) {
    let site = Site::new(double).await;
    let (server, worker) = (site.server(1).await, site.worker(2).await);
    let waiting = wait_and_claim(&worker);
    let (claimed, ()) = tokio::join!(waiting, submit(&server, "r-1"));
    assert_eq!(claimed.len(), 1);
    // The ticket may have come after the claim, or brought it about.
    tokio::select! {
        () = async { loop { worker.work_arrived(None).await } } => {}
        () = held(&worker, 1) => {}
    }
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_millis(LEASE_MILLIS / 2)).await;
        beat(&worker, &claimed[0]).await;
        // One that came twice on a busy machine is replaced by another, which is held back and counted as neither.
        assert_eq!(site.count(&site.tickets).await.0, 0, "the lease lasts, and the ticket is hidden");
    }
    finish(&worker, &claimed[0]).await;
    assert_eq!(site.count(&site.tickets).await, (0, 0));
    assert_eq!(worker.backend().tickets_held(), 0);
}

/// Waits until a process holds this many tickets.
async fn held(engine: &Engine<Aws>, count: usize) {
    while engine.backend().tickets_held() != count {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn the_ticket_of_a_worker_that_is_gone_comes_to_another(double: &Double) {
    let site = Site::new(double).await;
    let (server, first) = (site.server(1).await, site.worker(2).await);
    submit(&server, "r-1").await;
    let lost = wait_and_claim(&first).await;
    drop(first);
    let second = site.worker(3).await;
    let taken = wait_and_claim(&second).await;
    assert_eq!((taken.len(), taken[0].is_takeover), (1, true));
    assert!(taken[0].fence > lost[0].fence);
    finish(&second, &taken[0]).await;
    drain(&site, &second).await;
}

/// Waits until nothing is left in the queue, as an idle worker does.
async fn drain(site: &Site, worker: &Engine<Aws>) {
    let empty = async {
        while site.count(&site.tickets).await != (0, 0) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        () = async { loop { worker.work_arrived(None).await } } => {}
        emptied = tokio::time::timeout(Duration::from_secs(30), empty) => emptied.expect("tickets are cleared away"),
    }
}

async fn a_ticket_for_what_others_run_waits_and_goes_with_it(double: &Double) {
    let site = Site::new(double).await;
    let follow_every = Some(Duration::from_millis(100));
    let server = site.server(1).await;
    let idle = site.open(AwsOptions { takes_tickets: true, follow_every, ..site.options(2) }).await;
    submit(&server, "r-1").await;
    let claimed = claim(&server).await;
    assert_eq!(claimed.len(), 1, "whoever asks first has the task, with a ticket or without");
    tokio::select! {
        () = async { loop { idle.work_arrived(None).await } } => {}
        () = held(&idle, 1) => {}
    }
    assert_eq!(claim(&idle).await.len(), 0);
    assert_eq!(site.count(&site.tickets).await, (0, 1), "it is hidden, not given back");
    finish(&server, &claimed[0]).await;
    held(&idle, 0).await;
    idle.backend().own_sent().await;
    assert_eq!(site.count(&site.tickets).await, (0, 0), "it goes when its task is done");
}

/// Receives the ticket so often that the queue gives it up.
pub(crate) async fn give_up(site: &Site) -> QueueEvent {
    for _ in 0..4 {
        let receive = site.sqs.receive_message().queue_url(&site.tickets).visibility_timeout(0);
        receive.send().await.expect("the queue answers");
    }
    site.take(&site.dead).await
}

async fn dead_tickets_are_judged_by_how_their_tasks_stand(double: &Double) {
    let site = Site::new(double).await;
    let (server, worker) = (site.server(1).await, site.worker(2).await);
    submit(&server, "r-1").await;
    let dead = give_up(&site).await;
    assert_eq!(dead.records.len(), 1, "the queue gave it up");
    // A function may be called twice with the same.
    for _ in 0..2 {
        assert!(dead_tickets(&server, &dead).await.is_done());
    }
    assert_eq!(site.count(&site.tickets).await.0, 2, "nothing is lost");
    let claimed = wait_and_claim(&worker).await;
    assert_eq!(claimed.len(), 1, "and nothing is done twice");
    assert!(dead_tickets(&server, &dead).await.is_done(), "of a task that runs");
    finish(&worker, &claimed[0]).await;
    drain(&site, &worker).await;
    assert!(dead_tickets(&server, &dead).await.is_done());
    assert_eq!(site.count(&site.tickets).await, (0, 0), "nothing is left to do");
    let task = tidemill_engine::commit::TaskKey { tenant: tenant(), request: RequestId::trusted("r-1") };
    let head = server.task(task).await.expect("it answers").and_then(|task| task.head).expect("it ran");
    assert_eq!((head.fence.0, head.attempts), (1, 1));

    let strange: QueueEvent =
        serde_json::from_str(r#"{"Records":[{"messageId":"m","body":"hello"}]}"#).expect("a batch");
    assert_eq!(dead_tickets(&server, &strange).await.batch_item_failures[0].item_identifier, "m");
}

/// Workers of another tenant get the ticket too. They pass it on, ever more seldom, and it is never given up.
async fn a_ticket_of_another_tenant_is_passed_on_ever_more_seldom(double: &Double) {
    let site = Site::new(double).await;
    let proxy = Proxy::start(&site.endpoint, |_, _| Fate::Forward).await;
    let options = AwsOptions { takes_tickets: true, ..site.options(2) };
    let (server, stranger) = (site.server(1).await, site.open_at(&proxy.endpoint, options).await);
    submit(&server, "r-1").await;
    let others: Arc<[TenantId]> = Arc::from([TenantId::trusted("other")]);
    let mut delays = Vec::new();
    let passed_on = async {
        while delays.len() < 3 {
            for (operation, body) in proxy.take_requests() {
                if operation == "SendMessageBatch" {
                    let body: serde_json::Value = serde_json::from_slice(&body).expect("it is JSON");
                    delays.push(body["Entries"][0]["DelaySeconds"].as_u64().unwrap_or(0));
                }
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::select! {
        () = async { loop { stranger.work_arrived(Some(Arc::clone(&others))).await } } => {}
        passed = tokio::time::timeout(Duration::from_secs(40), passed_on) => passed.expect("it is passed on"),
    }
    assert_eq!(delays, [4, 8, 16]);
    assert_eq!(site.drain(&site.dead).await, Vec::<serde_json::Value>::new(), "it is never given up");
    // A worker that may claim does not wait for the ticket.
    let worker = site.worker(3).await;
    let claimed = tokio::time::timeout(Duration::from_secs(5), wait_and_claim(&worker)).await;
    assert_eq!(claimed.expect("the state tells of it").len(), 1);
}

/// An answer of the queue that never comes does not end the receiving.
async fn a_receive_without_an_answer_is_made_again(double: &Double) {
    let site = Site::new(double).await;
    let receives = std::sync::atomic::AtomicU64::new(0);
    let proxy = Proxy::start(&site.endpoint, move |_, operation| {
        let is_first =
            operation == "ReceiveMessage" && receives.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
        if is_first { Fate::Hang } else { Fate::Forward }
    })
    .await;
    let tickets = TicketOptions { wait: Duration::from_secs(1), ..TicketOptions::default() };
    let options = AwsOptions { takes_tickets: true, tickets, ..site.options(2) };
    let (server, worker) = (site.server(1).await, site.open_at(&proxy.endpoint, options).await);
    submit(&server, "r-1").await;
    tokio::select! {
        () = async { loop { worker.work_arrived(None).await } } => {}
        () = held(&worker, 1) => {}
    }
}

async fn lost_tickets_are_sent_again_and_no_others(double: &Double) {
    let site = Site::new(double).await;
    let server = site.server(1).await;
    submit(&server, "r-1").await;
    submit(&server, "r-2").await;
    assert_eq!(reconcile(&server).await.expect("it ends"), Reconciled::default());
    assert_eq!(site.drain(&site.tickets).await.len(), 2);
    let found = reconcile(&server).await.expect("it ends");
    assert_eq!(found, Reconciled { tickets: 2, ..Reconciled::default() });
    assert_eq!(reconcile(&server).await.expect("it ends"), Reconciled::default());
    let mut tickets: Vec<_> =
        site.drain(&site.tickets).await.iter().map(|ticket| ticket["requestId"].to_string()).collect();
    tickets.sort_unstable();
    assert_eq!(tickets, [r#""r-1""#, r#""r-2""#]);
}

crate::double::on_ministack!(
    a_ticket_is_taken_extended_and_deleted,
    the_ticket_of_a_worker_that_is_gone_comes_to_another,
    a_ticket_for_what_others_run_waits_and_goes_with_it,
    dead_tickets_are_judged_by_how_their_tasks_stand,
    a_ticket_of_another_tenant_is_passed_on_ever_more_seldom,
    a_receive_without_an_answer_is_made_again,
    lost_tickets_are_sent_again_and_no_others
);
crate::double::on_moto!(
    a_ticket_is_taken_extended_and_deleted,
    the_ticket_of_a_worker_that_is_gone_comes_to_another,
    a_ticket_for_what_others_run_waits_and_goes_with_it,
    dead_tickets_are_judged_by_how_their_tasks_stand,
    lost_tickets_are_sent_again_and_no_others
);
