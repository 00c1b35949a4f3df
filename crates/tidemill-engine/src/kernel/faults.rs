//! Deliberate mistakes, for the tests that prove the simulation would notice them. Never compiled into a product.

/// Makes the mistakes and the list of their names, so that the list has all of them.
macro_rules! faults {
    ($($(#[$about:meta])* $name:ident,)*) => {
        /// Which rule is broken on purpose.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct Faults {
            $($(#[$about])* pub $name: bool,)*
        }

        impl Faults {
            /// All there are.
            pub const NAMES: &'static [&'static str] = &[$(stringify!($name)),*];

            /// Breaks the rule of this name. `false` if there is none.
            pub fn set(&mut self, name: &str) -> bool {
                match name {
                    $(stringify!($name) => self.$name = true,)*
                    _ => return false,
                }
                true
            }
        }
    };
}

faults! {
    /// A finish is taken from any worker, whatever its fence.
    skip_fence_check,
    /// A finished task may finish again.
    allow_second_outcome,
    /// A completion forgets to count down one of its children.
    skip_counter,
    /// What an attempt used is not added to the sum of its job.
    skip_sum,
    /// Agents start whatever the budgets say.
    ignore_budgets,
    /// A job that comes to rest tells nobody.
    skip_callback,
    /// A job that failed raises no alert for people.
    skip_job_failed,
    /// A change of tasks is reported and not made.
    forget_changes,
    /// A change of tasks does not say which attempts had other work.
    forget_rework,
    /// A delivery whose first try failed is forgotten.
    forget_delivery,
    /// A check of health is accepted whatever was reported meanwhile.
    skip_check_version,
    /// A task that was running in crash after crash is run beside others.
    crowd_suspects,
    /// Another report than the one that was taken is answered like a repeated one.
    drop_other_reports,
    /// A tenant may have any number of unfinished tasks.
    ignore_tenant_limits,
    /// What a clock that was set back hides stays hidden.
    keep_hidden,
    /// An attempt that took too long ends its task, whatever its policy says.
    end_with_timeout,
    /// A completion says nothing of the files that were left.
    forget_artifacts,
    /// The end of a job is stamped by the job's own clock, whatever its tasks say.
    stamp_jobs_early,
    /// A dead letter stays open when its task runs again.
    keep_letters_open,
    /// Derived rows are taken as they are read, whatever their checksums say.
    skip_row_checks,
}
