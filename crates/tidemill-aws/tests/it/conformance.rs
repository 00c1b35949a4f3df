//! The conformance suite on a double.

use std::sync::Arc;

use tidemill_aws::{Aws, AwsOptions, Bus, Connection, create_table};
use tidemill_conformance::{Lab, ManualClock, TestWorld, block_on, policy};

use crate::double::{Double, RUNTIME, double, fresh_name, other_double};

/// A store in a table and a bucket of its own.
pub(crate) struct TableWorld {
    backend: Arc<Aws>,
    connection: Connection,
    options: AwsOptions,
}

impl TableWorld {
    pub(crate) async fn open(connection: Connection, options: AwsOptions, clock: ManualClock) -> Self {
        let opened = Aws::open(connection.clone(), options.clone(), Arc::new(clock)).await;
        let backend = Arc::new(opened.expect("the store opens"));
        Self { backend, connection, options }
    }
}

impl TestWorld for TableWorld {
    type Backend = Aws;
    const REOPENS: bool = true;
    const IS_DISTANT: bool = true;

    fn backend(&self) -> Arc<Aws> {
        Arc::clone(&self.backend)
    }

    fn time_passed(&self) {
        self.backend.time_passed();
    }

    /// Nothing is closed: what the process was doing stops where it is.
    async fn reopen(self, clock: ManualClock) -> Option<Self> {
        let Self { backend, connection, mut options } = self;
        drop(Arc::into_inner(backend).expect("nobody else holds the backend"));
        options.seed += 1;
        let opened = RUNTIME.spawn(Self::open(connection, options, clock));
        Some(opened.await.expect("opening does not panic"))
    }
}

/// Cases of thousands of questions for events, for which a double takes minutes. Rows have no part in them: once is enough.
const SLOW: [&str; 2] = ["every_path_answers_like_select", "every_path_honours_time_ranges"];

/// Runs a case, unless there is no double.
fn run<F: Future<Output = ()>>(flush_every: u64, case: impl FnOnce(Lab<TableWorld>) -> F) {
    run_on(double(), flush_every, case);
}

fn run_on<F: Future<Output = ()>>(
    double: Option<&Double>,
    flush_every: u64,
    case: impl FnOnce(Lab<TableWorld>) -> F,
) {
    let Some(double) = double else { return };
    let clock = ManualClock::default();
    let world = RUNTIME.block_on(async {
        let connection = double.connect().await;
        let name = fresh_name();
        create_table(&connection, &name, &name).await.expect("the table is made");
        let options = AwsOptions {
            flush_every,
            follow_every: None,
            policy: policy(),
            ..AwsOptions::new(name.clone(), name, Bus::Loopback, 1)
        };
        TableWorld::open(connection, options, clock.clone()).await
    });
    block_on(case(Lab::new(world, clock)));
}

/// Rows are hardly ever written: what is opened again is folded from the log.
mod from_the_log {
    use super::*;

    fn in_turn<F: Future<Output = ()>>(name: &str, case: impl FnOnce(Lab<TableWorld>) -> F) {
        if SLOW.contains(&name) {
            return eprintln!("{name} runs in from_the_rows only");
        }
        run(1_000, case);
    }

    tidemill_conformance::conformance_tests_run_by!(in_turn);
}

/// Rows are written after every other commit, and leave memory as soon as they may.
mod from_the_rows {
    use super::*;

    fn in_turn<F: Future<Output = ()>>(_: &str, case: impl FnOnce(Lab<TableWorld>) -> F) {
        run(2, case);
    }

    tidemill_conformance::conformance_tests_run_by!(in_turn);
}

/// Some of each kind on the other double, which is several times slower.
mod on_moto {
    use tidemill_conformance::{
        access_paths, deliveries, durability, events, executions, following, idempotency, isolation, joins,
        leases, parking, queue, records, repairs, retries, scenarios, triage,
    };

    use super::*;

    macro_rules! cases {
        ($($section:ident::$case:ident),* $(,)?) => {
            $(
                #[test]
                fn $case() {
                    run_on(other_double(), 2, $section::$case::<TableWorld>);
                }
            )*
        };
    }

    cases!(
        events::appends_in_order,
        events::events_come_back_as_they_were_sent,
        events::a_large_event_comes_back_whole_and_in_order,
        access_paths::the_latest_event_is_the_one_with_the_latest_time,
        access_paths::no_path_shows_another_tenant,
        idempotency::a_key_used_twice_at_once_makes_one_job,
        leases::refuses_a_stale_fence,
        leases::one_outcome_per_run,
        retries::exhaustion_makes_a_dead_letter_and_fails_the_task,
        joins::children_start_only_after_all_parents,
        joins::a_join_is_dispatched_once,
        isolation::no_read_crosses_tenants,
        queue::a_stale_receipt_has_no_effect,
        following::events_are_followed_in_the_order_of_the_log,
        executions::a_run_ends_once_with_its_effects,
        deliveries::what_is_given_up_is_kept,
        records::records_are_listed_in_order,
        records::blobs_are_kept_whole,
        parking::a_failed_task_is_parked,
        triage::a_workflow_event_counts_once,
        repairs::racing_claims_have_one_winner,
        scenarios::idempotency_3_race_of_two_workers,
        durability::everything_acknowledged_is_there_after_reopen,
    );
}
