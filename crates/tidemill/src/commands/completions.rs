//! `tidemill completions`: what a shell needs to complete commands.

use clap::{Args, CommandFactory as _, ValueEnum};
use clap_complete::aot::{Shell, generate};
use std::process::ExitCode;

use super::Ended;
use crate::output::Output;

/// Print a completion script for a shell
///
/// For bash: `tidemill completions bash > /etc/bash_completion.d/tidemill`. For zsh: a file `_tidemill` in a directory of
/// `$fpath`. For fish: `~/.config/fish/completions/tidemill.fish`.
#[derive(Args)]
pub(crate) struct Completions {
    /// Which shell
    shell: Name,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Name {
    Bash,
    Elvish,
    Fish,
    Powershell,
    Zsh,
}

impl Completions {
    pub(crate) fn execute(self, out: &mut Output) -> Ended {
        let shell = match self.shell {
            Name::Bash => Shell::Bash,
            Name::Elvish => Shell::Elvish,
            Name::Fish => Shell::Fish,
            Name::Powershell => Shell::PowerShell,
            Name::Zsh => Shell::Zsh,
        };
        let mut script = Vec::new();
        generate(shell, &mut crate::Arguments::command(), "tidemill", &mut script);
        out.raw(&script)?;
        Ok(ExitCode::SUCCESS)
    }
}
