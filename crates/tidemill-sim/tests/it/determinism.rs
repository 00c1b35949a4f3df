//! A seed is a promise too: the same seed gives the same run, down to the last disk operation.

use tidemill_sim::run::{BackendKind, RunPlan, run};

#[test]
fn the_same_seed_gives_the_same_run() {
    for kind in [BackendKind::Memory, BackendKind::Embedded] {
        let plan = RunPlan::new(kind);
        for seed in 1..=6 {
            let [first, second] = [(); 2].map(|()| run(seed, &plan).map_err(|failure| failure.violation));
            assert_eq!(first, second, "seed {seed} on {kind:?}");
        }
    }
}

#[test]
fn another_seed_gives_another_run() {
    let plan = RunPlan::new(BackendKind::Memory);
    let digests: std::collections::BTreeSet<u64> =
        (1..=10).filter_map(|seed| run(seed, &plan).ok()).map(|tally| tally.digest).collect();
    assert_eq!(digests.len(), 10);
}
