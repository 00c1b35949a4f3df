//! Duties: one holder at a time, and another when that one is gone.

use std::sync::Arc;

use tidemill_aws::{Roster, create_table};
use tidemill_engine::conformance::ManualClock;

use crate::double::{RUNTIME, double, fresh_name};

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
    });
}
