//! Duties: one holder at a time, and another when that one is gone.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidemill_aws::{AwsOptions, Roster, Terms, create_table};
use tidemill_conformance::ManualClock;
use tidemill_engine::backend::Backend;
use tidemill_engine::clock::SystemClock;
use tidemill_engine::command::{Alert, Command};
use tidemill_engine::notice::Notice;
use tidemill_engine::outbound::{Courier, Parcel, SendError, Sender};
use tidemill_model::{Json, TenantId};

use crate::double::{RUNTIME, double, fresh_name};
use crate::site::Site;

#[test]
fn a_duty_has_one_holder_and_passes_on() {
    let Some(double) = double() else { return };
    RUNTIME.block_on(async {
        let (connection, name) = (double.connect().await, fresh_name());
        create_table(&connection, &name, &name).await.expect("the table is made");
        let clock = ManualClock::default();
        let roster =
            |holder: &str| Roster::new(&connection, &name, "0", holder, Arc::new(clock.clone()) as _);
        let (one, two) = (roster("one"), roster("two"));
        let has = async |roster: &Roster, duty: &str| roster.try_take(duty).await.expect("the table answers");
        assert!(has(&one, "timers").await);
        assert!(!has(&two, "timers").await, "one has it");
        assert!(has(&two, "scripts").await, "another duty is free");
        clock.advance(20_000);
        assert!(has(&one, "timers").await, "it is renewed");
        clock.advance(20_000);
        assert!(!has(&two, "timers").await, "which counts from then on");
        two.give_back("timers").await;
        assert!(!has(&two, "timers").await, "nobody gives back what is another's");
        clock.advance(11_000);
        assert!(has(&two, "timers").await, "one was silent for too long");
        assert!(!has(&one, "timers").await, "and finds out");
        two.give_back("timers").await;
        assert!(has(&one, "timers").await, "what is given back is free at once");
        let ahead = ManualClock::default();
        ahead.advance(24 * 3_600_000);
        let ahead = Roster::new(&connection, &name, "0", "ahead", Arc::new(ahead) as _);
        assert!(has(&ahead, "courier").await);
        assert!(has(&two, "courier").await, "a holder whose clock ran ahead does not keep it for a day");
    });
}

/// Notes which process sent what.
struct Noting {
    name: &'static str,
    sent: Arc<Mutex<Vec<&'static str>>>,
    heard: Notice,
}

impl Sender for Noting {
    async fn send(&self, _: Parcel) -> Result<(), SendError> {
        self.sent.lock().expect("nobody panicked").push(self.name);
        self.heard.ring();
        Ok(())
    }

    async fn sleep(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }
}

/// The holder of a duty is gone from one moment to the next: another has it within the time that the terms name, and does
/// what was left.
#[test]
fn another_takes_over_from_a_holder_that_died() {
    let Some(double) = double() else { return };
    RUNTIME.block_on(async {
        let site = Site::new(double).await;
        let terms = Terms {
            term: Duration::from_secs(3),
            renew_every: Duration::from_secs(1),
            stop_after: Duration::from_millis(2_500),
            ask_every: Duration::from_millis(500),
        };
        let (sent, heard) = (Arc::new(Mutex::new(Vec::new())), Notice::default());
        let mut processes = Vec::new();
        for (seed, name) in [(1, "one"), (2, "two")] {
            let mut options =
                AwsOptions { follow_every: Some(Duration::from_millis(100)), ..site.options(seed) };
            options.policy.alerts.people = true;
            let engine = site.open(options).await;
            let clock = Arc::new(SystemClock::start());
            let roster = Roster::new(&double.connect().await, &site.name, "0", name, clock).with_terms(terms);
            let (sent, heard) = (Arc::clone(&sent), heard.clone());
            if name == "one" {
                assert!(roster.try_take("courier").await.expect("it answers"));
            }
            let does = engine.clone();
            let task = tokio::spawn(async move {
                loop {
                    roster.take("courier").await;
                    let courier = Courier::new(
                        does.clone(),
                        Noting { name, sent: Arc::clone(&sent), heard: heard.clone() },
                    );
                    tokio::select! {
                        () = roster.keep("courier") => {}
                        () = courier.work() => {}
                    }
                }
            });
            processes.push((engine, task));
        }
        let alert = async |name: &'static str| {
            let alert = Alert {
                tenant: TenantId::trusted("acme"),
                name,
                is_raised: true,
                message: "look".to_owned(),
                properties: Json::empty_object(),
            };
            let answers = processes[1].0.backend().execute(vec![Command::Alert(alert)]).await;
            for answer in answers.expect("it answers") {
                answer.expect("it is raised");
            }
        };
        let is_sent = async |count: usize| {
            loop {
                let listening = heard.listen();
                if sent.lock().expect("nobody panicked").len() >= count {
                    return;
                }
                listening.await;
            }
        };
        alert("first").await;
        is_sent(1).await;
        assert_eq!(*sent.lock().expect("nobody panicked"), ["one"]);
        // Nothing is given back.
        processes[0].1.abort();
        let died = tokio::time::Instant::now();
        alert("second").await;
        let limit = terms.takeover_max() + Duration::from_secs(2);
        tokio::time::timeout(limit, is_sent(2)).await.expect("another takes over in time");
        assert_eq!(*sent.lock().expect("nobody panicked"), ["one", "two"]);
        assert!(died.elapsed() > Duration::from_secs(1), "it was the holder's until its term ended");
        processes[1].1.abort();
    });
    assert_eq!(Terms::default().takeover_max(), Duration::from_secs(35), "docs/internals/aws.md says so");
}
