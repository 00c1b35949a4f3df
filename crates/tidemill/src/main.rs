//! The binary: parses the arguments, runs one command, ends with its exit code.

mod commands;
mod data_dir;
mod output;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use self::commands::{Export, Import, Rebuild, Verify};
use self::output::Output;

const EXIT_CODES: &str = "\
Exit codes:
  0  done, and nothing was found wrong
  1  something was found wrong, or the command failed
  2  the arguments are wrong, or the data directory cannot be used: it is held by
     another process, it is not there, or a newer release wrote it";

/// Durable graphs of work in one data directory.
#[derive(Parser)]
#[command(name = "tidemill", version, after_help = EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Verify(Verify),
    Rebuild(Rebuild),
    Export(Export),
    Import(Import),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let mut out = Output::stdio();
    let done = match arguments.command {
        Command::Verify(command) => command.execute(&mut out),
        Command::Rebuild(command) => command.execute(&mut out),
        Command::Export(command) => command.execute(&mut out),
        Command::Import(command) => command.execute(&mut out),
    };
    let code = done.unwrap_or_else(|error| {
        // Whoever closed our output has seen enough.
        if !error.is_closed_pipe() {
            out.note(format_args!("tidemill: {error}"));
        }
        error.exit_code()
    });
    out.end(code)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_are_consistent_and_the_help_names_exit_codes() {
        let mut command = Arguments::command();
        command.build();
        command.clone().debug_assert();
        for name in ["verify", "rebuild", "export", "import"] {
            let help = command.find_subcommand_mut(name).unwrap().render_long_help().to_string();
            assert!(help.contains("Exit codes:") && help.contains("[default: .tidemill]"), "{help}");
        }
    }
}
