//! The list of cases, and how one is run.

use super::{Lab, ManualClock, TestWorld, block_on};

/// Runs one case on a fresh world, without a runtime. An adapter with a runtime of its own awaits the case there.
pub fn run_case<W, F>(case: impl FnOnce(Lab<W>) -> F, make: impl FnOnce(ManualClock) -> W)
where
    W: TestWorld,
    F: Future<Output = ()>,
{
    let clock = ManualClock::default();
    let world = make(clock.clone());
    block_on(case(Lab::new(world, clock)));
}

/// Hands the list of all cases to another macro: section by section, each a module of the suite.
#[macro_export]
macro_rules! conformance_cases {
    ($then:ident $($arguments:tt)*) => {
        $crate::$then! {
            [$($arguments)*]
            events:
                appends_in_order,
                events_come_back_as_they_were_sent,
                an_event_past_its_time_to_live_is_gone,
                a_senders_own_time_is_kept,
                a_stamp_is_never_before_the_entitys_last,
                refuses_a_timestamp_too_far_ahead,
                refuses_reserved_names,
                refuses_what_is_too_large_or_malformed,
                a_large_event_comes_back_whole_and_in_order,
                a_missing_blob_is_a_transient_error,
                times_of_a_task_always_grow;
            access_paths:
                every_path_answers_like_select,
                every_path_honours_time_ranges,
                pages_neither_lose_nor_repeat,
                the_latest_event_is_the_one_with_the_latest_time,
                a_query_out_of_bounds_is_refused,
                no_path_shows_another_tenant;
            submitting:
                a_cycle_is_named,
                all_violations_are_told,
                a_job_with_100_001_tasks_is_refused,
                options_out_of_bounds_are_refused,
                a_bad_task_on_its_own_is_refused,
                absent_ids_are_minted,
                a_task_on_its_own_runs;
            idempotency:
                the_same_key_and_body_give_the_same_job,
                a_key_used_twice_at_once_makes_one_job,
                another_body_under_the_same_key_is_refused,
                a_key_expires_after_a_day,
                a_request_id_stands_in_for_a_key,
                a_task_id_is_used_once,
                a_key_gives_the_same_task,
                a_request_id_outlives_its_keys,
                a_task_id_outlives_its_keys,
                keys_of_different_routes_do_not_meet;
            outside:
                an_event_comes_back_as_it_was_sent,
                an_event_is_taken_once,
                what_contradicts_itself_is_refused,
                a_task_that_is_only_told_of_is_not_run,
                a_worker_of_another_system_runs_a_task,
                a_silent_worker_of_another_system_is_replaced,
                a_name_does_not_stand_for_a_fence,
                a_failed_attempt_is_not_the_end,
                tenants_do_not_meet;
            leases:
                refuses_a_stale_fence,
                one_outcome_per_run,
                a_repeated_finish_is_answered_alike,
                a_takeover_waits_for_the_lease_and_raises_the_fence,
                a_late_finish_without_a_takeover_is_taken,
                a_busy_message_is_hidden_and_not_counted,
                a_duplicate_after_the_end_is_dropped,
                a_message_of_an_older_run_is_dropped,
                another_outcome_for_a_recorded_fence_is_refused,
                takeovers_are_limited,
                a_task_that_crashes_the_server_is_found_by_running_it_alone,
                a_task_with_two_messages_is_given_up_once,
                tasks_given_up_together_are_reported_one_by_one,
                a_release_counts_no_attempt,
                heartbeats_extend_the_lease_and_change_no_state,
                a_heartbeat_before_the_beginning_begins,
                begin_names_the_process,
                recover_releases_leases_of_former_generations,
                finish_and_claim_are_one_step,
                a_malformed_report_is_refused;
            retries:
                retries_follow_the_schedule,
                exhaustion_makes_a_dead_letter_and_fails_the_task,
                a_final_failure_ends_the_task_once,
                the_category_decides_whether_it_is_tried_again,
                a_timeout_is_terminal,
                a_timeout_is_tried_again_if_the_task_asks_for_it,
                a_tasks_own_policy_rules,
                a_longer_delay_that_was_asked_for_wins,
                a_duplicate_does_not_cut_the_delay_short,
                a_long_error_is_cut;
            last_errors:
                the_last_error_is_what_the_last_attempt_said,
                every_end_has_its_last_error;
            joins:
                children_start_only_after_all_parents,
                a_join_is_dispatched_once,
                parents_that_end_in_one_group_dispatch_their_join_once,
                parents_that_end_together_dispatch_their_join_once,
                random_graphs_run_each_task_once_after_its_parents,
                wide_graphs_fan_out_and_in,
                a_wide_join_counts_its_parents;
            jobs:
                events_carry_the_documented_properties,
                a_job_is_not_completed_before_its_last_task,
                a_failure_leaves_independent_tasks_running,
                the_status_follows_the_tasks,
                the_same_names_in_two_jobs_do_not_interfere,
                outputs_reach_the_children,
                large_outputs_reach_the_children,
                a_large_job_is_created_and_grows,
                states_of_large_jobs_are_listed_in_part,
                jobs_and_tasks_are_listed_by_pages,
                a_task_on_its_own_causes_no_job_event;
            artifacts:
                artifacts_reach_the_children,
                artifacts_of_other_attempts_reach_nobody,
                many_artifacts_reach_the_children,
                artifacts_that_were_not_kept_are_refused;
            ran:
                what_ran_is_told_afterwards,
                what_ran_is_not_what_a_task_was_changed_to;
            growth:
                added_tasks_with_satisfied_dependencies_start_at_once,
                adding_to_a_completed_or_cancelled_job_is_refused,
                a_task_added_below_a_failed_one_waits_for_the_resume,
                concurrent_additions_keep_totals,
                an_added_name_is_taken_once,
                a_bad_addition_changes_nothing,
                a_job_cannot_grow_beyond_the_limit;
            steering:
                cancel_ends_everything_active,
                cancel_may_be_repeated,
                resume_reopens_a_cancelled_job,
                resume_opens_a_new_run,
                resume_takes_names_and_refuses_others,
                a_dead_letter_can_be_replayed,
                a_dead_letter_of_a_finished_task_changes_nothing,
                a_resume_closes_dead_letters,
                a_replay_reopens_a_cancelled_job,
                dead_letters_are_listed_by_pages;
            state_sets:
                the_four_sets_are_disjoint_and_complete,
                a_resumed_task_changes_its_set,
                sets_are_by_tenant_and_application;
            isolation:
                no_read_crosses_tenants,
                no_command_crosses_tenants,
                no_message_crosses_tenants,
                blobs_and_records_are_kept_apart,
                a_claim_serves_the_named_tenants_only,
                tenants_take_turns;
            queue:
                a_received_message_is_hidden_for_a_while,
                visibility_can_be_changed,
                a_stale_receipt_has_no_effect,
                a_claim_makes_older_receipts_stale,
                a_delayed_message_waits,
                an_empty_answer_tells_when_to_look_again,
                waiting_ends_when_a_message_arrives,
                waiting_ends_for_those_who_serve_the_tenant,
                waiting_ends_when_a_message_comes_due,
                a_message_received_too_often_becomes_a_dead_letter,
                receives_and_claims_are_counted_apart,
                a_dead_letter_never_fails_a_finished_or_running_task,
                a_message_without_a_task_runs_one,
                a_raw_request_out_of_bounds_is_refused;
            following:
                events_are_followed_in_the_order_of_the_log,
                what_is_acknowledged_can_be_followed,
                waiting_ends_with_the_next_event,
                an_outlived_event_is_passed_over,
                numbers_survive_a_restart;
            definitions:
                definitions_have_versions,
                racing_writers_get_a_version_each,
                definitions_are_listed_by_name,
                a_definition_in_use_stays,
                a_job_pins_the_versions_it_was_submitted_with,
                executions_are_resolved,
                files_are_checked_before_anything_is_stored,
                producers_set_only_the_variables_that_a_definition_opens,
                a_repeated_file_is_answered_alike,
                a_file_of_100_000_tasks_is_accepted,
                work_that_is_brought_along_has_its_own_secrets_and_path,
                a_changed_file_is_taken_for_what_did_not_complete,
                a_resume_takes_the_newest_definition;
            scripts:
                scripts_have_versions,
                a_script_with_subscriptions_stays,
                a_removal_and_a_subscription_do_not_pass_each_other,
                a_subscription_sees_what_comes_after_it;
            api_keys:
                a_key_is_known_until_it_is_revoked,
                keys_are_listed,
                a_key_names_its_tenants;
            watching:
                a_cancel_revokes_the_leases_of_the_job,
                a_takeover_revokes_the_lease_before_it,
                a_task_on_its_own_can_be_cancelled,
                usage_is_recorded_with_the_completion,
                texts_are_cleaned_before_they_are_stored,
                a_task_is_told_in_detail,
                the_tasks_of_a_job_are_told_in_detail,
                jobs_are_found_by_what_they_are,
                many_jobs_are_steered_at_once;
            usage:
                sums_are_those_of_the_events,
                sums_are_listed,
                a_jobs_budget_stops_its_agents,
                a_tenants_budget_stops_its_agents,
                a_session_goes_to_the_next_attempt;
            executions:
                an_execution_is_queued_once,
                a_run_ends_once_with_its_effects,
                pending_executions_survive,
                a_scripts_letter_is_never_deleted,
                executions_stay_within_their_tenant,
                records_of_all_tenants_are_listed;
            deliveries:
                a_rest_is_told_with_its_event,
                a_try_ends_once,
                what_is_given_up_is_kept,
                due_deliveries_come_in_order,
                a_callback_needs_an_allowed_host,
                failed_jobs_are_told_together;
            records:
                records_have_versions,
                records_are_listed_in_order,
                blobs_are_kept_whole;
            parking:
                a_failed_task_is_parked,
                every_end_of_a_failing_task_parks,
                an_output_lets_a_job_go_on,
                a_parked_task_may_run_again,
                a_parked_task_may_be_failed,
                a_parked_task_waits_for_its_time,
                cancel_ends_what_is_parked,
                failures_are_grouped_by_what_they_say,
                parked_tasks_survive;
            health:
                a_check_lists_what_is_processing,
                a_task_that_waits_for_its_retry_is_not_stuck,
                a_check_is_about_one_tenant,
                what_stands_for_too_long_is_found,
                the_last_check_is_kept,
                the_worst_of_many_tasks_are_listed;
            triage:
                a_workflow_event_counts_once,
                a_wrong_workflow_event_is_refused,
                marks_hold,
                groups_are_listed_and_filtered,
                a_wait_ends_once,
                nobody_waits_for_ever,
                a_bulk_survives_and_resumes_each_once,
                triage_stays_within_its_tenant;
            repairs:
                each_command_sees_those_before_it,
                a_refused_command_does_not_stop_the_others,
                racing_claims_have_one_winner,
                the_sweep_repairs_a_deleted_message,
                a_clock_set_back_across_a_restart_strands_nothing,
                the_sweep_leaves_sound_work_alone,
                the_sweep_goes_on_until_all_is_repaired;
            scenarios:
                idempotency_1_happy_path,
                idempotency_2_duplicate_delivery,
                idempotency_3_race_of_two_workers,
                idempotency_4_worker_crash_recovery,
                idempotency_5_long_task_with_heartbeats,
                the_sample_flow_reproduces;
            durability:
                everything_acknowledged_is_there_after_reopen,
                a_job_survives_a_restart_after_every_step,
                dedupe_survives,
                fences_survive,
                delayed_messages_survive,
                the_next_life_recovers_the_leases,
                blobs_and_records_survive;
        }
    };
}

/// Makes one `#[test]` of every case, in one module per section.
///
/// The argument is a function from a [`ManualClock`](crate::ManualClock) to a fresh
/// [`TestWorld`](crate::TestWorld).
#[macro_export]
macro_rules! conformance_tests {
    ($make:expr) => {
        $crate::conformance_cases! { conformance_test_modules $make }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_test_modules {
    ([$make:expr] $($section:ident: $($case:ident),+;)+) => {
        $(mod $section {
            #[allow(unused_imports, reason = "the function that makes the world may stand anywhere")]
            use super::*;

            $(#[test]
            fn $case() {
                $crate::run_case($crate::$section::$case, $make);
            })+
        })+
    };
}

/// Like [`conformance_tests!`], for adapters that run cases in their own way: the argument is called with each case.
#[macro_export]
macro_rules! conformance_tests_run_by {
    ($run:expr) => {
        $crate::conformance_cases! { conformance_test_modules_run_by $run }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_test_modules_run_by {
    ([$run:expr] $($section:ident: $($case:ident),+;)+) => {
        $(mod $section {
            #[allow(unused_imports, reason = "the function that runs the case may stand anywhere")]
            use super::*;

            $(#[test]
            fn $case() {
                $run(stringify!($case), $crate::$section::$case);
            })+
        })+
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! conformance_names {
    ([] $($section:ident: $($case:ident),+;)+) => {
        &[$($(concat!(stringify!($section), "::", stringify!($case))),+),+]
    };
}

/// The names of all cases, each after its section.
pub const NAMES: &[&str] = conformance_cases! { conformance_names };
