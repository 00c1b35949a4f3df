//! A fixed number of seeds, every time. Long runs are for the binary: `cargo run -p tidemill-sim --release`.

use tidemill_sim::run::{BackendKind, RunPlan, run};

const MEMORY_SEEDS: u64 = 150;
const EMBEDDED_SEEDS: u64 = 80;

/// One thread each: the two tests together use what a small machine has.
fn assert_all_pass(kind: BackendKind, seeds: u64) {
    let plan = RunPlan::new(kind);
    for seed in 1..=seeds {
        if let Err(failure) = run(seed, &plan) {
            let steps = failure.trace.join("\n");
            panic!("{steps}\nseed {seed} on {kind:?}: {}", failure.violation);
        }
    }
}

#[test]
fn every_promise_holds_in_memory() {
    assert_all_pass(BackendKind::Memory, MEMORY_SEEDS);
}

#[test]
fn every_promise_holds_on_a_disk_that_forgets() {
    assert_all_pass(BackendKind::Embedded, EMBEDDED_SEEDS);
}
