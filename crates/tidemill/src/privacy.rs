//! Keeps what this process knows from the tasks that it runs.

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

/// From here on other processes of the same user cannot read this one's environment and memory, where the keys are that
/// tasks are not given. Programs that it starts are not held to it. Root reads everything all the same.
pub(crate) fn keep_environment_private() {
    // A kernel without it runs tasks as well.
    let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
}
