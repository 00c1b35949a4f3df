//! Deliberate mistakes, for the tests that prove the simulation would notice them. Never compiled into a product.

/// Which rule is broken on purpose.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a rule on its own")]
pub struct Faults {
    /// A finish is taken from any worker, whatever its fence.
    pub skip_fence_check: bool,
    /// A finished task may finish again.
    pub allow_second_outcome: bool,
    /// A completion forgets to count down one of its children.
    pub skip_counter: bool,
    /// What an attempt used is not added to the sum of its job.
    pub skip_sum: bool,
    /// Agents start whatever the budgets say.
    pub ignore_budgets: bool,
    /// A job that comes to rest tells nobody.
    pub skip_callback: bool,
    /// A job that failed is not told to people.
    pub skip_job_failed: bool,
    /// A change of tasks is told and not made.
    pub forget_changes: bool,
    /// A delivery whose first try failed is forgotten.
    pub forget_delivery: bool,
    /// A check of health is taken whatever was told meanwhile.
    pub skip_check_version: bool,
    /// A task that was running in crash after crash is run beside others.
    pub crowd_suspects: bool,
    /// Another report than the one that was taken is answered like a repeated one.
    pub drop_other_reports: bool,
    /// A tenant may have any number of unfinished tasks.
    pub ignore_tenant_limits: bool,
    /// What a clock that was set back hides stays hidden.
    pub keep_hidden: bool,
    /// An attempt that took too long ends its task, whatever its policy says.
    pub end_with_timeout: bool,
    /// The end of a job is stamped by the job's own clock, whatever its tasks say.
    pub stamp_jobs_early: bool,
    /// A dead letter stays open when its task runs again.
    pub keep_letters_open: bool,
    /// Derived rows are taken as they are read, whatever their checksums say.
    pub skip_row_checks: bool,
}
