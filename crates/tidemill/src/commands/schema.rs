//! `tidemill schema`: the JSON Schema of what users write.

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::Ended;
use crate::output::Output;

/// Print a JSON Schema, for editors and other programs
#[derive(Args)]
pub(crate) struct Schema {
    /// Of what
    of: Subject,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Subject {
    /// Job files
    Job,
    /// Definitions of tasks, as `definitions update` reads them
    Definition,
}

impl Schema {
    pub(crate) fn execute(self, out: &mut Output) -> Ended {
        let schema = match self.of {
            Subject::Job => tidemill_model::authored::job_file::schema(),
            Subject::Definition => tidemill_model::authored::definition::schema(),
        };
        out.json_pretty(&schema)?;
        Ok(ExitCode::SUCCESS)
    }
}
