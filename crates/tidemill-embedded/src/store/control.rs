//! Control entries: the part of a commit that users do not see, as the log keeps it.

pub use tidemill_engine::codec::control::Control;
use tidemill_engine::codec::control::each_control;
use tidemill_engine::commit::Commit;

use crate::log::Group;

/// Puts a commit's control entries into a group, in the order in which they are applied.
pub(super) fn push_controls(group: &mut Group, commit: &Commit) {
    each_control(commit, |put| group.put_control(put));
}
