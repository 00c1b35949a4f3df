//! Cases of the conformance suite on a stage whose table gets nothing until somebody looks at events, and then gets
//! everything twice and in the wrong order. Decisions that rest on events must not notice.

use std::sync::Arc;
use std::time::Duration;

use tidemill_aws::{Aws, AwsOptions, save_event};
use tidemill_conformance::{
    Lab, ManualClock, TestWorld, block_on, deliveries, durability, executions, growth, health, jobs, joins,
    parking, retries, scenarios, scripts, steering, triage, watching,
};
use tidemill_engine::clock::Clock as _;

use crate::conformance::TableWorld;
use crate::double::{RUNTIME, double};
use crate::site::Site;

struct LateWorld {
    inner: TableWorld,
    site: Arc<Site>,
    clock: ManualClock,
}

impl TestWorld for LateWorld {
    type Backend = Aws;
    const REOPENS: bool = true;

    fn backend(&self) -> Arc<Aws> {
        self.inner.backend()
    }

    fn time_passed(&self) {
        self.inner.time_passed();
    }

    async fn settled(&self) {
        let (backend, site, now) = (self.backend(), Arc::clone(&self.site), self.clock.now());
        let saving = RUNTIME.spawn(async move {
            backend.all_sent().await;
            let connection = tidemill_aws::Connection::to_double(&site.endpoint).await;
            let mut sent = site.drain(&site.events).await;
            sent.reverse();
            for event in sent.iter().chain(&sent) {
                let detail = event["detail"].to_string();
                save_event(&connection, &site.name, &detail, now).await.expect("it is stored");
            }
        });
        saving.await.expect("events are stored");
    }

    async fn reopen(self, clock: ManualClock) -> Option<Self> {
        let Self { inner, site, .. } = self;
        let inner = inner.reopen(clock.clone()).await?;
        Some(Self { inner, site, clock })
    }
}

fn run<F: Future<Output = ()>>(case: impl FnOnce(Lab<LateWorld>) -> F) {
    let Some(double) = double() else { return };
    let clock = ManualClock::default();
    let world = RUNTIME.block_on(async {
        let site = Arc::new(Site::new(double).await);
        let options = AwsOptions {
            flush_every: 4,
            // Nothing is answered from memory because it is new.
            save_lag: Duration::ZERO,
            policy: tidemill_conformance::policy(),
            ..site.options(1)
        };
        let inner = TableWorld::open(double.connect().await, options, clock.clone()).await;
        LateWorld { inner, site, clock: clock.clone() }
    });
    block_on(case(Lab::new(world, clock)));
}

macro_rules! cases {
    ($($section:ident::$case:ident),* $(,)?) => {
        $(
            #[test]
            fn $case() {
                run($section::$case::<LateWorld>);
            }
        )*
    };
}

cases!(
    joins::children_start_only_after_all_parents,
    jobs::events_carry_the_documented_properties,
    jobs::outputs_reach_the_children,
    jobs::large_outputs_reach_the_children,
    growth::added_tasks_with_satisfied_dependencies_start_at_once,
    retries::exhaustion_makes_a_dead_letter_and_fails_the_task,
    steering::resume_opens_a_new_run,
    steering::a_dead_letter_can_be_replayed,
    watching::a_task_is_told_in_detail,
    scripts::a_subscription_sees_what_comes_after_it,
    executions::a_run_ends_once_with_its_effects,
    executions::pending_executions_survive,
    deliveries::a_rest_is_told_with_its_event,
    parking::an_output_lets_a_job_go_on,
    parking::parked_tasks_survive,
    health::a_check_lists_what_is_processing,
    health::the_last_check_is_kept,
    triage::a_workflow_event_counts_once,
    triage::groups_are_listed_and_filtered,
    triage::a_wait_ends_once,
    scenarios::the_sample_flow_reproduces,
    durability::everything_acknowledged_is_there_after_reopen,
    durability::a_job_survives_a_restart_after_every_step,
);
