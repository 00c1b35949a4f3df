//! `tidemill aws` of a program that was built without it.

use clap::Args;

use super::{CommandError, Ended};

/// Deploy a stage on AWS (this program was built without it)
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES)]
pub(crate) struct Aws {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, hide = true)]
    _given: Vec<String>,
}

impl Aws {
    #[expect(clippy::unused_self, reason = "called as every command is")]
    pub(crate) fn execute(&self) -> Ended {
        Err(CommandError::Unusable(
            "this program was built without AWS; build one that has it with \
             `cargo build --release -p tidemill --features aws`"
                .to_owned(),
        ))
    }
}
