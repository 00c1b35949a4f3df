//! Each rule that is broken on purpose is found within a few seeds.

use tidemill_engine::faults::Faults;
use tidemill_sim::disk::Operation;
use tidemill_sim::run::{BackendKind, RunPlan, run};

/// How many seeds it may take. Most breaks show in the first few.
const SEEDS_MAX: u64 = 40;

fn assert_is_found(what: &str, plan: &RunPlan) {
    let found = (1..=SEEDS_MAX).find_map(|seed| run(seed, plan).err());
    let found =
        found.unwrap_or_else(|| panic!("{SEEDS_MAX} seeds on {:?} did not notice: {what}", plan.kind));
    eprintln!("{what}: seed {}: {}", found.seed, found.violation);
}

fn with_faults(kind: BackendKind, faults: Faults) -> RunPlan {
    RunPlan { faults, ..RunPlan::new(kind) }
}

#[test]
fn a_skipped_fence_check_is_found() {
    for kind in [BackendKind::Memory, BackendKind::Embedded] {
        let faults = Faults { skip_fence_check: true, ..Faults::default() };
        assert_is_found("a finish is taken whatever its fence", &with_faults(kind, faults));
    }
}

#[test]
fn a_second_outcome_is_found() {
    for kind in [BackendKind::Memory, BackendKind::Embedded] {
        let faults = Faults { allow_second_outcome: true, ..Faults::default() };
        assert_is_found("a finished task finishes again", &with_faults(kind, faults));
    }
}

#[test]
fn a_forgotten_counter_is_found() {
    for kind in [BackendKind::Memory, BackendKind::Embedded] {
        let faults = Faults { skip_counter: true, ..Faults::default() };
        assert_is_found("a completion forgets a child", &with_faults(kind, faults));
    }
}

#[test]
fn a_forgotten_sum_is_found() {
    for kind in [BackendKind::Memory, BackendKind::Embedded] {
        let faults = Faults { skip_sum: true, ..Faults::default() };
        assert_is_found("an attempt is not added to its job's sum", &with_faults(kind, faults));
    }
}

#[test]
fn an_ignored_budget_is_found() {
    for kind in [BackendKind::Memory, BackendKind::Embedded] {
        let faults = Faults { ignore_budgets: true, ..Faults::default() };
        assert_is_found("an agent starts under a budget that is used up", &with_faults(kind, faults));
    }
}

#[test]
fn a_rest_that_is_not_told_is_found() {
    for kind in [BackendKind::Memory, BackendKind::Embedded] {
        let faults = Faults { skip_callback: true, ..Faults::default() };
        assert_is_found("a job at rest tells nobody", &with_faults(kind, faults));
    }
}

#[test]
fn a_failed_job_that_people_do_not_hear_of_is_found() {
    for kind in [BackendKind::Memory, BackendKind::Embedded] {
        let faults = Faults { skip_job_failed: true, ..Faults::default() };
        assert_is_found("a job fails and nobody is told", &with_faults(kind, faults));
    }
}

#[test]
fn files_that_no_child_hears_of_are_found() {
    for kind in [BackendKind::Memory, BackendKind::Embedded] {
        let faults = Faults { forget_artifacts: true, ..Faults::default() };
        assert_is_found("a completion says nothing of its files", &with_faults(kind, faults));
    }
}

#[test]
fn a_change_of_tasks_that_is_not_made_is_found() {
    for kind in [BackendKind::Memory, BackendKind::Embedded] {
        let faults = Faults { forget_changes: true, ..Faults::default() };
        assert_is_found("a changed task runs with what it had", &with_faults(kind, faults));
    }
}

#[test]
fn other_work_that_is_not_told_of_is_found() {
    for kind in [BackendKind::Memory, BackendKind::Embedded] {
        let faults = Faults { forget_rework: true, ..Faults::default() };
        assert_is_found("an attempt of other work is taken for one of the new", &with_faults(kind, faults));
    }
}

#[test]
fn a_forgotten_delivery_is_found() {
    for kind in [BackendKind::Memory, BackendKind::Embedded] {
        let faults = Faults { forget_delivery: true, ..Faults::default() };
        assert_is_found("a delivery whose try failed is gone", &with_faults(kind, faults));
    }
}

#[test]
fn a_check_that_knew_too_little_is_found() {
    for kind in [BackendKind::Memory, BackendKind::Embedded] {
        let faults = Faults { skip_check_version: true, ..Faults::default() };
        assert_is_found("a check of health tells what was told meanwhile", &with_faults(kind, faults));
    }
}

#[test]
fn a_report_that_is_dropped_is_found() {
    for kind in [BackendKind::Memory, BackendKind::Embedded] {
        let faults = Faults { drop_other_reports: true, ..Faults::default() };
        assert_is_found("another outcome is answered like a repeated one", &with_faults(kind, faults));
    }
}

#[test]
fn a_tenant_that_has_too_much_is_found() {
    for kind in [BackendKind::Memory, BackendKind::Embedded] {
        let faults = Faults { ignore_tenant_limits: true, ..Faults::default() };
        assert_is_found("a tenant has any number of tasks", &with_faults(kind, faults));
    }
}

#[test]
fn a_suspect_in_company_is_found() {
    for kind in [BackendKind::Memory, BackendKind::Embedded] {
        let faults = Faults { crowd_suspects: true, ..Faults::default() };
        assert_is_found("what ran in crash after crash runs beside others", &with_faults(kind, faults));
    }
}

#[test]
fn a_task_that_another_clock_hides_is_found() {
    // Only a process that starts anew forgets that a message was visible.
    let faults = Faults { keep_hidden: true, ..Faults::default() };
    assert_is_found("a clock that was set back hides a task", &with_faults(BackendKind::Embedded, faults));
}

#[test]
fn a_timeout_that_ends_too_early_is_found() {
    for kind in [BackendKind::Memory, BackendKind::Embedded] {
        let faults = Faults { end_with_timeout: true, ..Faults::default() };
        assert_is_found("a timeout is not tried again", &with_faults(kind, faults));
    }
}

#[test]
fn a_job_that_ends_before_its_tasks_is_found() {
    for kind in [BackendKind::Memory, BackendKind::Embedded] {
        let faults = Faults { stamp_jobs_early: true, ..Faults::default() };
        assert_is_found("a job is completed before its last task", &with_faults(kind, faults));
    }
}

#[test]
fn a_letter_that_stays_open_is_found() {
    for kind in [BackendKind::Memory, BackendKind::Embedded] {
        let faults = Faults { keep_letters_open: true, ..Faults::default() };
        assert_is_found("the letter of a task that runs again is open", &with_faults(kind, faults));
    }
}

#[test]
fn rows_that_are_taken_as_they_are_are_found() {
    let faults = Faults { skip_row_checks: true, ..Faults::default() };
    let plan = RunPlan { flips: 150, ..with_faults(BackendKind::Embedded, faults) };
    assert_is_found("a flipped bit of a row is taken for true", &plan);
}

#[test]
fn flipped_bits_of_rows_harm_nothing() {
    for seed in 1..=8 {
        let plan = RunPlan { flips: 150, ..RunPlan::new(BackendKind::Embedded) };
        if let Err(found) = run(seed, &plan) {
            panic!("seed {seed}: {}\n{}", found.violation, found.trace.join("\n"));
        }
    }
}

#[test]
fn a_removed_sync_is_found() {
    for (operation, prefix) in [
        (Operation::Sync, "log/0"),
        (Operation::Sync, "log/spare"),
        (Operation::Sync, "log/FORMAT"),
        (Operation::SyncDir, "log"),
    ] {
        let removed_syncs = vec![(operation, prefix.to_owned())];
        let plan = RunPlan { removed_syncs, ..RunPlan::new(BackendKind::Embedded) };
        assert_is_found(&format!("no {operation:?} of {prefix}"), &plan);
    }
}
