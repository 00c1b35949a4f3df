//! What is let go, and what must not be.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_s3::primitives::ByteStream;
use tidemill_aws::{Aws, AwsOptions, Bus, Connection};
use tidemill_conformance::{Lab, ManualClock, TestWorld};
use tidemill_engine::backend::{Backend, Fault};
use tidemill_engine::engine::{DeliveryFilter, Engine, EventBatch, IdempotencyKey, JobRequest, TaskRequest};
use tidemill_engine::outbound::Target;
use tidemill_engine::reads::Reads as _;
use tidemill_engine::record::{RecordKind, RecordValue};
use tidemill_model::{
    AppName, Entity, EntityId, EntityType, EventType, Json, RequestId, TaskId, TaskName, TaskOptions,
    TaskSpec, TenantId, Timestamp,
};

use crate::conformance::TableWorld;
use crate::double::Double;
use crate::proxy::{Fate, Proxy};
use crate::site::Site;

fn tenant() -> TenantId {
    TenantId::trusted("acme")
}

fn event(kind: &str) -> EventBatch {
    EventBatch {
        tenant: tenant(),
        app: AppName::trusted("orders"),
        origin: "test".to_owned(),
        events: vec![tidemill_engine::engine::NewEvent {
            entity: Entity { kind: EntityType::trusted("ORDER"), id: EntityId::trusted("o-1") },
            event_type: EventType::trusted(kind),
            timestamp: None,
            properties: Json::empty_object(),
            ttl: None,
        }],
    }
}

async fn publish(engine: &Engine<Aws>, kind: &str) {
    engine.publish(event(kind)).await.expect("the event is taken");
    engine.backend().own_sent().await;
}

/// A job whose commit and rows are too large for items.
async fn submit_large(engine: &Engine<Aws>) -> tidemill_model::JobId {
    let spec = |at: usize| TaskSpec {
        task_id: TaskId::trusted(&format!("t-{at}")),
        name: TaskName::trusted("n"),
        depends_on: Vec::new(),
        input: Json::trusted(&format!(r#"{{"text":"{}"}}"#, "x".repeat(9_000))),
        options: TaskOptions::default(),
    };
    let request = JobRequest {
        tenant: tenant(),
        app: AppName::trusted("orders"),
        request: Some(RequestId::trusted("large")),
        name: None,
        budget: None,
        callback: None,
        tasks: (0..64).map(spec).collect(),
        idempotency: None,
    };
    let job = engine.submit_job(request).await.expect("the job is accepted").job;
    engine.backend().own_sent().await;
    job
}

async fn keys(site: &Site, prefix: &str) -> Vec<String> {
    let listed = site.s3.list_objects_v2().bucket(&site.name).prefix(prefix).send().await.expect("it lists");
    listed.contents.unwrap_or_default().into_iter().filter_map(|object| object.key).collect()
}

async fn a_trimmed_log_misleads_nobody(double: &Double) {
    let site = Site::new(double).await;
    let options = |seed| AwsOptions { keep_log: Duration::ZERO, ..site.options(seed) };
    let sleeper = site.open(options(1)).await;
    publish(&sleeper, "before").await;
    let busy = site.open(options(2)).await;
    let job = submit_large(&busy).await;
    for kind in ["one", "two"] {
        publish(&busy, kind).await;
    }
    let backend = busy.backend();
    assert_eq!(backend.trim_log().await.expect("it is trimmed").groups, 0, "the rows are not written");
    assert_eq!(keys(&site, "log/").await.len(), 1);
    backend.flush().await.expect("the rows are written");
    let newest = backend.newest();
    assert_eq!(backend.trim_log().await.expect("it is trimmed").groups, 4);
    assert_eq!(keys(&site, "log/").await.len(), 0);
    assert_eq!(backend.trim_log().await.expect("it is trimmed").groups, 0);

    // It believes that the log ends with its own event.
    publish(&sleeper, "after").await;
    assert!(sleeper.backend().newest() > newest, "nothing was put in the place of what was trimmed");
    let fresh = site.open(options(3)).await;
    for engine in [&sleeper, &busy, &fresh] {
        let found = engine.job(tenant(), job).await.expect("it answers").expect("the job is known");
        assert_eq!(found.head.counts.total(), 64);
        assert_eq!(engine.backend().follow(0, 100).await.expect("it answers").len(), 1, "only what is kept");
    }
    assert_eq!(fresh.backend().newest(), sleeper.backend().newest());
}

async fn objects_that_nothing_names_are_removed_and_no_others(double: &Double) {
    let site = Site::new(double).await;
    let engine = site.server(1).await;
    let job = submit_large(&engine).await;
    engine.backend().flush().await.expect("the rows are written");
    let [logs, rows, checkpoints] = ["log/", "rows/", "checkpoints/"];
    let named = [keys(&site, logs).await, keys(&site, rows).await, keys(&site, checkpoints).await];
    assert_eq!((named[0].len(), named[1].is_empty(), named[2].len()), (1, false, 1), "{named:?}");
    for key in [
        "log/0/00000000000000000001-00000000000000000000000000000009".to_owned(),
        "log/0/00000000000000000077-00000000000000000000000000000009".to_owned(),
        "checkpoints/0/00000000000000000001-9".to_owned(),
        named[1][0].replace("0001", "0009"),
        "rows/ROW#0#ENTITY#acme#ORDER#a/b/ROW/00000000000000000001".to_owned(),
    ] {
        let put = site.s3.put_object().bucket(&site.name).key(key).body(ByteStream::from_static(b"x"));
        put.send().await.expect("it is put");
    }
    let day = Duration::from_secs(24 * 3_600);
    assert_eq!(engine.backend().sweep_objects(day).await.expect("it ends"), 0, "they are young");
    // The times of objects are whole seconds.
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    assert_eq!(engine.backend().sweep_objects(Duration::ZERO).await.expect("it ends"), 5);
    let left = [keys(&site, logs).await, keys(&site, rows).await, keys(&site, checkpoints).await];
    assert_eq!(left, named);
    let again = site.server(2).await;
    let tasks = again.job_tasks(tenant(), job, 0, 100).await.expect("it answers");
    assert_eq!(tasks.len(), 64);
}

async fn an_event_that_the_bus_refuses_is_kept_and_holds_up_nothing(double: &Double) {
    const REFUSED: &str =
        r#"{"FailedEntryCount":1,"Entries":[{"ErrorCode":"MalformedDetail","ErrorMessage":"no"}]}"#;
    let site = Site::new(double).await;
    let calls = std::sync::atomic::AtomicU64::new(0);
    let proxy = Proxy::start(&site.endpoint, move |_, operation| {
        let is_first =
            operation == "PutEvents" && calls.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 0;
        if is_first { Fate::Answer(REFUSED) } else { Fate::Forward }
    })
    .await;
    let mut options = site.options(1);
    options.policy.alerts.people = true;
    let engine = site.open_at(&proxy.endpoint, options).await;
    publish(&engine, "poison").await;
    publish(&engine, "plain").await;
    engine.backend().all_sent().await;
    let sent = site.drain(&site.events).await;
    let kinds: Vec<_> = sent.iter().map(|event| event["detail"]["eventType"].clone()).collect();
    assert_eq!(kinds, ["plain"]);
    let letters = engine.delivery_letters(&tenant(), &DeliveryFilter::default(), None, 10).await;
    let letters = letters.expect("it answers").letters;
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].event.event_type.as_str(), "poison");
    assert_eq!(&*letters[0].error, "the bus refused it: MalformedDetail");
    let alerts = engine.backend().all_records(RecordKind::Delivery, None, 10).await.expect("it answers");
    let texts: Vec<_> = alerts
        .iter()
        .filter_map(|(_, record)| match &record.value {
            RecordValue::Delivery(delivery) if delivery.target == Target::People => {
                Some(delivery.body.as_str())
            }
            _ => None,
        })
        .collect();
    assert_eq!(texts.len(), 1, "people are told once");
    assert!(texts[0].contains("poison") && texts[0].contains(&letters[0].id.to_string()), "{texts:?}");
    // The table has it all the same.
    let other = site.server(2).await;
    let entity = Entity { kind: EntityType::trusted("ORDER"), id: EntityId::trusted("o-1") };
    let query = tidemill_model::events::event_query::EventQuery::all(
        tenant(),
        tidemill_model::events::access_path::AccessPath::Entity(entity),
    );
    let found = other.backend().events(query).await.expect("it answers").events;
    assert!(found.iter().any(|event| event.event_type.as_str() == "poison"));
}

/// What people were told.
async fn told(engine: &Engine<Aws>) -> Vec<String> {
    let records = engine.backend().all_records(RecordKind::Delivery, None, 10).await.expect("it answers");
    let body = |value: &RecordValue| match value {
        RecordValue::Delivery(delivery) if delivery.target == Target::People => {
            Some(delivery.body.as_str().to_owned())
        }
        _ => None,
    };
    records.iter().filter_map(|(_, record)| body(&record.value)).collect()
}

async fn events_that_nobody_stored_are_stored_before_their_group_goes(double: &Double) {
    let site = Site::new(double).await;
    let mut options = AwsOptions { keep_log: Duration::ZERO, ..site.options(1) };
    options.policy.alerts.people = true;
    let engine = site.open(options).await;
    publish(&engine, "lost").await;
    publish(&engine, "lost too").await;
    let lost = site.drain(&site.events).await;
    assert_eq!(lost.len(), 2, "the bus took them");
    let backend = engine.backend();
    backend.flush().await.expect("the rows are written");
    let kept = backend.keep_house().await.expect("it ends");
    assert_eq!((kept.groups, kept.events), (2, 2), "{kept:?}");
    let reader = site.open(AwsOptions { bus: Bus::Loopback, ..site.options(9) }).await;
    let query = tidemill_model::events::event_query::EventQuery::all(
        tenant(),
        tidemill_model::events::access_path::AccessPath::Tenant,
    );
    let found = reader.backend().events(query).await.expect("it answers").events;
    let kinds: Vec<_> = found.iter().map(|event| event.event_type.to_string()).collect();
    assert!(kinds.contains(&"lost".to_owned()) && kinds.contains(&"lost too".to_owned()), "{kinds:?}");
    let raised = told(&engine).await;
    assert!(raised.len() == 1 && raised[0].contains("2 events had not reached the table"), "{raised:?}");

    // Now somebody stores them.
    publish(&engine, "stored").await;
    backend.all_sent().await;
    let connection = double.connect().await;
    for event in site.drain(&site.events).await {
        let detail = event["detail"].to_string();
        tidemill_aws::save_event(&connection, &site.name, &detail, Timestamp::MIN)
            .await
            .expect("it is stored");
    }
    backend.flush().await.expect("the rows are written");
    let kept = backend.keep_house().await.expect("it ends");
    assert!(kept.groups > 0 && kept.events == 0, "{kept:?}");
    let cleared = told(&engine).await;
    assert!(cleared.len() == 2 && cleared.iter().any(|text| text.contains("again")), "{cleared:?}");
}

async fn what_a_dead_process_left_is_sent_by_one_that_is_busy(double: &Double) {
    let site = Site::new(double).await;
    // Its own tickets never leave, so that it always has something under way.
    let hindered = Proxy::start(&site.endpoint, |_, operation| match operation {
        "SendMessageBatch" => Fate::Throttle,
        _ => Fate::Forward,
    })
    .await;
    let options = AwsOptions { patience: Duration::from_millis(200), ..site.options(1) };
    let busy = site.open_at(&hindered.endpoint, options).await;
    let cut = Proxy::start(&site.endpoint, |_, operation| match operation {
        "PutEvents" => Fate::CutBefore,
        _ => Fate::Forward,
    })
    .await;
    let dying = site.open_at(&cut.endpoint, site.options(2)).await;
    dying.publish(event("orphan")).await.expect("the event is taken");
    cut.is_cut().await;
    drop(dying);
    let request = TaskRequest {
        tenant: tenant(),
        app: AppName::trusted("orders"),
        request: None,
        name: TaskName::trusted("n"),
        input: Json::empty_object(),
        options: TaskOptions::default(),
        idempotency: None,
    };
    busy.submit_task(request).await.expect("the task is accepted");
    let arrives = async {
        loop {
            let sent = site.drain(&site.events).await;
            if sent.iter().any(|event| event["detail"]["eventType"] == "orphan") {
                return;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), arrives).await.expect("it is sent");
    drop(busy);
}

/// Publishes an event with such properties and gives it as another process reads it from the table.
async fn published(site: &Site, engine: &Engine<Aws>, kind: &str, properties: &str) -> Vec<String> {
    let mut request = event(kind);
    request.events[0].properties = Json::trusted(properties);
    engine.publish(request).await.expect("the event is taken");
    let sent = tokio::time::timeout(Duration::from_secs(20), engine.backend().all_sent()).await;
    sent.expect("nothing holds up the outbox");
    let other = site.open(AwsOptions { bus: Bus::Loopback, ..site.options(9) }).await;
    let query = tidemill_model::events::event_query::EventQuery::all(
        tenant(),
        tidemill_model::events::access_path::AccessPath::Tenant,
    );
    let found = other.backend().events(query).await.expect("it answers").events;
    found.into_iter().map(|event| event.properties.as_str().to_owned()).collect()
}

async fn an_event_of_many_levels_reaches_the_table(double: &Double) {
    let site = Site::new(double).await;
    let engine = site.open(AwsOptions { bus: Bus::Loopback, ..site.options(1) }).await;
    let mut expected = Vec::new();
    for (kind, levels) in [("flat", 1), ("at the limit", 29), ("beyond it", 30), ("as deep as may be", 98)] {
        let properties = format!(r#"{{"a":{}{},"b":1}}"#, "[".repeat(levels), "]".repeat(levels));
        expected.push(properties.clone());
        assert_eq!(Box::pin(published(&site, &engine, kind, &properties)).await, expected, "{kind}");
    }
}

async fn an_event_that_the_table_refuses_is_kept_and_holds_up_nothing(double: &Double) {
    let site = Site::new(double).await;
    let puts = std::sync::atomic::AtomicU64::new(0);
    // The first put is the commit, the second the event.
    let proxy = Proxy::start(&site.endpoint, move |_, operation| {
        let is_event = operation == "PutItem" && puts.fetch_add(1, std::sync::atomic::Ordering::SeqCst) == 1;
        if is_event { Fate::Refuse("ValidationException") } else { Fate::Forward }
    })
    .await;
    let options = AwsOptions { bus: Bus::Loopback, ..site.options(1) };
    let engine = site.open_at(&proxy.endpoint, options).await;
    assert_eq!(Box::pin(published(&site, &engine, "refused", r#"{"n":1}"#)).await, Vec::<String>::new());
    assert_eq!(Box::pin(published(&site, &engine, "plain", r#"{"n":2}"#)).await, [r#"{"n":2}"#]);
    let letters = engine.delivery_letters(&tenant(), &DeliveryFilter::default(), None, 10).await;
    let letters = letters.expect("it answers").letters;
    assert_eq!(letters.len(), 1);
    assert!(letters[0].error.contains("ValidationException"), "{}", letters[0].error);
    assert_eq!(letters[0].event.event_type.as_str(), "refused");
}

async fn a_checkpoint_that_leads_nowhere_is_told_of(double: &Double) {
    let site = Site::new(double).await;
    let engine = site.server(1).await;
    publish(&engine, "one").await;
    engine.backend().flush().await.expect("the rows are written");
    let objects = keys(&site, "checkpoints/").await;
    assert_eq!(objects.len(), 1);
    let delete = site.s3.delete_object().bucket(&site.name).key(&objects[0]);
    delete.send().await.expect("it is deleted");
    let connection = Connection::to_double(&site.endpoint).await;
    let opened = Aws::open(connection, site.options(2), Arc::new(ManualClock::default()));
    let opened = tokio::time::timeout(Duration::from_secs(20), opened).await.expect("it comes to an end");
    match opened.err().expect("there is nothing to open") {
        Fault::Damaged(problem) => assert!(problem.contains(&objects[0]), "{problem}"),
        other => panic!("{other}"),
    }
}

async fn another_bucket_bus_or_table_is_refused_by_name(double: &Double) {
    let site = Site::new(double).await;
    let open = async |options: AwsOptions| {
        let connection = Connection::to_double(&site.endpoint).await;
        Aws::open(connection, options, Arc::new(ManualClock::default())).await.map(drop)
    };
    let other = || "other".to_owned();
    assert!(open(AwsOptions { bus: Bus::Loopback, queue_url: None, ..site.options(1) }).await.is_ok());
    assert!(open(site.options(2)).await.is_ok(), "what nobody named before is noted");
    for (options, setting) in [
        (AwsOptions { bucket: other(), ..site.options(3) }, "S3_BUCKET"),
        (AwsOptions { bus: Bus::Named(other()), ..site.options(3) }, "EVENTBRIDGE_BUS_NAME"),
        (AwsOptions { queue_url: Some(site.dead.clone()), ..site.options(3) }, "SQS_QUEUE_URL"),
        (AwsOptions { table: other(), ..site.options(3) }, "DYNAMODB_EVENTS_TABLE_NAME"),
    ] {
        match open(options).await.expect_err("it is another stage's") {
            Fault::Unavailable(problem) => {
                assert!(problem.contains(setting), "{problem}");
                assert!(!problem.contains('{'), "no inner parts: {problem}");
            }
            fault => panic!("{fault}"),
        }
    }
    assert!(open(AwsOptions { bus: Bus::Loopback, queue_url: None, ..site.options(4) }).await.is_ok());
}

async fn a_clock_that_is_off_is_refused(double: &Double) {
    let site = Site::new(double).await;
    let options = AwsOptions { checks_clock: true, ..site.options(1) };
    let engine = site.open(options.clone()).await;
    assert!(engine.backend().skew_millis().abs() < 5_000);
    let connection = Connection::to_double(&site.endpoint).await;
    let off = Aws::open(connection, options, Arc::new(ManualClock::default())).await;
    match off.err().expect("the clock of tests stands in another year") {
        Fault::Unavailable(problem) => {
            assert!(problem.contains("the clock of this machine is"), "{problem}");
        }
        other => panic!("{other}"),
    }
}

async fn records_whose_time_is_over_go_once_a_day(double: &Double) {
    let site = Site::new(double).await;
    let clock = ManualClock::default();
    let connection = double.connect().await;
    let options = AwsOptions { bus: Bus::Loopback, queue_url: None, ..site.options(1) };
    let world = TableWorld::open(connection, options, clock.clone()).await;
    let lab = Lab::new(world, clock);
    let key = |key: &str| IdempotencyKey { route: "r".to_owned(), key: key.to_owned(), body_hash: [1; 32] };
    let submit = async |name: &str| {
        let request = TaskRequest {
            tenant: tenant(),
            app: AppName::trusted("orders"),
            request: None,
            name: TaskName::trusted("n"),
            input: Json::empty_object(),
            options: TaskOptions::default(),
            idempotency: Some(key(name)),
        };
        lab.engine.submit_task(request).await.expect("the task is accepted").repeated
    };
    let backend = lab.world.backend();
    assert!(!submit("old").await);
    lab.pass(23 * 3_600_000);
    assert!(!submit("young").await);
    lab.pass(2 * 3_600_000);
    backend.flush().await.expect("the rows are written");
    assert_eq!(backend.keep_house().await.expect("it ends").records, 1);
    lab.pass(23 * 3_600_000);
    assert_eq!(backend.keep_house().await.expect("it ends").records, 0, "not before a day is over");
    lab.pass(3_600_000);
    assert_eq!(backend.keep_house().await.expect("it ends").records, 1);
}

crate::double::on_ministack!(
    a_trimmed_log_misleads_nobody,
    events_that_nobody_stored_are_stored_before_their_group_goes,
    what_a_dead_process_left_is_sent_by_one_that_is_busy,
    objects_that_nothing_names_are_removed_and_no_others,
    an_event_that_the_bus_refuses_is_kept_and_holds_up_nothing,
    an_event_of_many_levels_reaches_the_table,
    an_event_that_the_table_refuses_is_kept_and_holds_up_nothing,
    a_checkpoint_that_leads_nowhere_is_told_of,
    another_bucket_bus_or_table_is_refused_by_name,
    a_clock_that_is_off_is_refused,
    records_whose_time_is_over_go_once_a_day
);
crate::double::on_moto!(
    a_trimmed_log_misleads_nobody,
    events_that_nobody_stored_are_stored_before_their_group_goes,
    objects_that_nothing_names_are_removed_and_no_others,
    an_event_that_the_bus_refuses_is_kept_and_holds_up_nothing,
    an_event_of_many_levels_reaches_the_table
);
