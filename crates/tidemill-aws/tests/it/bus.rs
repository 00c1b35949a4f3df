//! Events over the bus and tickets through the queue, as they go on AWS.

use std::sync::Arc;

use tidemill_aws::{Aws, AwsOptions, Bus, Connection, Saved, create_table, save_event};
use tidemill_conformance::{Lab, ManualClock, TestWorld};
use tidemill_embedded::{Embedded, StoreOptions};
use tidemill_engine::backend::Backend;
use tidemill_model::events::access_path::AccessPath;
use tidemill_model::{Event, JobStatus, Timestamp};

use crate::conformance::TableWorld;
use crate::double::{RUNTIME, double, fresh_name};
use crate::proxy::{Fate, Proxy};
use crate::site::Site;

/// Runs the sample job and gives its events, in their order.
async fn sample_job<W: TestWorld>(lab: &Lab<W>) -> Vec<Event> {
    let job = lab.submit("A B C<A D<A E<C+D").await;
    while lab.status(job).await == JobStatus::Running {
        lab.pass(10);
        for task in lab.claim(9).await {
            lab.pass(10);
            lab.complete(&task, r#"{"n":1}"#).await;
        }
    }
    lab.events(AccessPath::Tenant).await
}

/// EV-24: what the bus is asked to take, for each event once.
fn check_puts(heard: &[(String, Vec<u8>)], bus: &str, told: &[Event]) {
    let puts = heard.iter().filter(|(operation, _)| operation == "PutEvents");
    let mut count = 0;
    for entry in puts.flat_map(|(_, body)| {
        let body: serde_json::Value = serde_json::from_slice(body).expect("it is JSON");
        body["Entries"].as_array().cloned().expect("a list")
    }) {
        count += 1;
        let detail = entry["Detail"].as_str().expect("it is text");
        let event = Event::from_detail(detail, Timestamp::MIN).expect("the whole event");
        let event = told.iter().find(|told| told.id == event.id).expect("one of those that were told");
        assert_eq!(entry["Source"], format!("task-workflow.{}", event.app), "{entry}");
        assert_eq!(entry["DetailType"], "log-event", "{entry}");
        assert_eq!(entry["EventBusName"], bus, "{entry}");
        // Seconds, with milliseconds behind the point.
        let millis = entry["Time"].as_f64().map(|seconds| format!("{:.0}", seconds * 1_000.0));
        assert_eq!(millis, Some(event.timestamp.millis().to_string()), "{entry}");
    }
    assert_eq!(count, told.len());
}

#[test]
fn events_reach_the_table_over_the_bus_and_tickets_the_queue() {
    let Some(double) = double() else { return };
    RUNTIME.block_on(async {
        let connection = double.connect().await;
        let site = Site::new(double).await;
        let name = site.name.clone();
        let clock = ManualClock::default();
        let options = AwsOptions {
            queue_url: Some(site.tickets.clone()),
            follow_every: None,
            ..AwsOptions::new(name.clone(), name.clone(), Bus::Named(site.bus.clone()), 1)
        };
        let proxy = Proxy::start(&site.endpoint, |_, _| Fate::Forward).await;
        let heard = Connection::to_double(&proxy.endpoint).await;
        let lab = Lab::new(TableWorld::open(heard, options.clone(), clock.clone()).await, clock.clone());
        let told = sample_job(&lab).await;
        assert_eq!(told.len(), 2 + 3 * 5, "events that are not in the table yet are known here");
        lab.world.backend().all_sent().await;
        check_puts(&proxy.take_requests(), &site.bus, &told);

        let sent = site.drain(&site.events).await;
        let received_at = Timestamp::clamped(1_800_000_100_000);
        for entry in &sent {
            assert_eq!(entry["detail-type"], "log-event");
            assert_eq!(entry["source"], format!("task-workflow.{}", told[0].app));
            let detail = entry["detail"].to_string();
            for expected in [Saved::New, Saved::Known] {
                let saved = save_event(&connection, &name, &detail, received_at).await;
                assert_eq!(saved.expect("the event is taken"), expected);
            }
        }
        assert_eq!(sent.len(), told.len(), "each event once");

        // Another process has nothing in memory and reads the table.
        drop(lab);
        let again = Aws::open(connection, AwsOptions { seed: 2, ..options }, Arc::new(clock.clone())).await;
        let again = again.expect("the store opens");
        let query =
            tidemill_model::events::event_query::EventQuery::all(told[0].tenant.clone(), AccessPath::Tenant);
        let stored = again.events(query).await.expect("the query is answered").events;
        let at_receipt = |event: &Event| Event { received_at, ..event.clone() };
        assert_eq!(shapes(&stored), shapes(&told.iter().map(at_receipt).collect::<Vec<_>>()));
        for (stored, told) in stored.iter().zip(&told) {
            assert_eq!(
                (stored.id, stored.timestamp, stored.received_at),
                (told.id, told.timestamp, received_at)
            );
        }

        let tickets = site.drain(&site.tickets).await;
        let mut tasks: Vec<&str> = tickets.iter().filter_map(|ticket| ticket["requestId"].as_str()).collect();
        tasks.sort_unstable();
        let names: Vec<_> = tasks.iter().filter_map(|task| task.rsplit('_').next()).collect();
        assert_eq!(names, ["A", "B", "C", "D", "E"], "{tickets:?}");
    });
}

#[test]
fn the_sample_job_tells_the_same_at_home_and_on_aws() {
    let Some(double) = double() else { return };
    let clock = ManualClock::default();
    let dir = std::env::temp_dir().join(format!("tidemill-aws-{}", fresh_name()));
    let at_home = {
        let backend = Embedded::open(
            &dir,
            StoreOptions { seed: 7, ..StoreOptions::default() },
            Arc::new(clock.clone()),
        );
        let lab = Lab::new(Home(Arc::new(backend.expect("the directory opens"))), clock.clone());
        tidemill_conformance::block_on(sample_job(&lab))
    };
    std::fs::remove_dir_all(&dir).expect("the directory was made");
    let on_aws = RUNTIME.block_on(async {
        let name = fresh_name();
        let connection: Connection = double.connect().await;
        create_table(&connection, &name, &name).await.expect("the table is made");
        let clock = ManualClock::default();
        let options =
            AwsOptions { follow_every: None, ..AwsOptions::new(name.clone(), name, Bus::Loopback, 1) };
        let lab = Lab::new(TableWorld::open(connection, options, clock.clone()).await, clock);
        sample_job(&lab).await
    });
    assert_eq!(shapes(&on_aws), shapes(&at_home));
}

pub(crate) struct Home(pub(crate) Arc<Embedded>);

impl TestWorld for Home {
    type Backend = Embedded;

    fn backend(&self) -> Arc<Embedded> {
        Arc::clone(&self.0)
    }

    fn time_passed(&self) {
        self.0.time_passed();
    }
}

/// Events as text, without what differs between two runs: ids, times and the order of fields.
fn shapes(events: &[Event]) -> Vec<String> {
    let sorted =
        |event: &Event| serde_json::from_str::<serde_json::Value>(&event.to_json()).expect("it is JSON");
    events.iter().map(|event| shape(&sorted(event).to_string())).collect()
}

/// The text with every UUID, every id of a job and every moment replaced.
fn shape(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_hexdigit() || c == '-';
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(is_part) {
        out.push_str(&rest[..start]);
        let run = &rest[start..];
        let end = run.find(|c| !is_part(c)).unwrap_or(run.len());
        let word = &run[..end];
        let digits = word.bytes().all(|byte| byte.is_ascii_digit());
        out.push_str(match word.len() {
            36 => "<uuid>",
            13 if digits => "<time>",
            // What is left of `job-` and the id behind it.
            33.. => "<job>",
            _ => word,
        });
        rest = &run[end..];
    }
    out + rest
}
