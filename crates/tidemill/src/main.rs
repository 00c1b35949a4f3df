//! The binary: parses the arguments, reads the settings, runs one command, ends with its exit code.

mod allocator;
mod arguments;
#[cfg(feature = "aws")]
mod aws;
mod client;
mod commands;
mod config;
mod data_dir;
mod display;
mod file_limit;
mod help;
mod home;
mod job_text;
mod logging;
mod node;
mod output;
mod privacy;
mod rota;
mod script_pool;
mod token_key;
mod traces;
mod watch;
mod worker_metrics;

use std::panic::UnwindSafe;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use self::commands::{
    AgentTask, Alerts, Aws, CommandError, Completions, Config, DeadLetters, Definitions, Doctor, Ended,
    Errors, Events, Executions, Export, Flags, Health, Import, Jobs, Keys, Parked, Rebuild, Run, Salvage,
    Schema, Scripts, Serve, Submit, Subscriptions, Tasks, Usage, Verify, Worker,
};
use self::config::{Resolved, Sources};
use self::file_limit::lower_file_limit;
use self::help::wrapped;
use self::output::Output;
use self::privacy::keep_environment_private;

#[global_allocator]
static ALLOCATOR: allocator::Allocator = allocator::Allocator::new();

const EXIT_CODES: &str = "\
Exit codes:
  0    done, and nothing was found wrong
  1    something was found wrong, or the command failed
  2    the arguments, a file or the settings are wrong, or the data directory cannot be \
       used: it is held by another process, it is not there, or a newer release wrote it
  130  interrupted
  141  the reader of the output closed it";

/// The hidden command that starts tasks. It must run before anything else, on one thread.
const SPAWNER: &str = "spawner";
/// The hidden command in which scripts run. The same holds for it.
const SCRIPT_HOST: &str = "script-host";

/// Durable graphs of work in one data directory.
#[derive(Parser)]
#[command(name = "tidemill", version, after_help = EXIT_CODES)]
struct Arguments {
    /// Read settings from this file instead of tidemill.yaml beside
    #[arg(long, global = true, value_name = "FILE", help_heading = "Settings")]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(Run),
    Serve(Serve),
    Worker(Worker),
    Submit(Submit),
    Jobs(Jobs),
    Tasks(Tasks),
    Events(Events),
    Definitions(Definitions),
    Scripts(Scripts),
    Subscriptions(Subscriptions),
    Executions(Executions),
    DeadLetters(DeadLetters),
    Errors(Errors),
    Parked(Parked),
    Usage(Usage),
    Health(Health),
    Alerts(Alerts),
    Keys(Keys),
    Aws(Aws),
    Config(Config),
    Doctor(Doctor),
    Verify(Verify),
    Salvage(Salvage),
    Rebuild(Rebuild),
    Export(Export),
    Import(Import),
    Completions(Completions),
    Schema(Schema),
    AgentTask(AgentTask),
}

fn main() -> ExitCode {
    exit_code_of(run)
}

/// A panic of the main thread, which has told its place by then, ends like any other failure. Supervisors know no code 101.
fn exit_code_of(run: impl FnOnce() -> ExitCode + UnwindSafe) -> ExitCode {
    std::panic::catch_unwind(run).unwrap_or(ExitCode::FAILURE)
}

fn run() -> ExitCode {
    keep_environment_private();
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == SPAWNER => {
            lower_file_limit(arguments.next().as_deref());
            return match tidemill_worker::spawner::serve() {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            };
        }
        Some(first) if first == tidemill_agent::LAUNCHER => return tidemill_agent::become_cli(arguments),
        _ => {}
    }
    // A host must have one thread, and has no use for anything else.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == SCRIPT_HOST) {
        return tidemill_script::host_main();
    }
    let typed = arguments::in_order(std::env::args_os().collect());
    let is_json = arguments::wants_json(&typed);
    let mut out = Output::stdio();
    let ended = match parse(&typed) {
        Parsed::Arguments(arguments) => execute(*arguments, is_json, &mut out),
        Parsed::Help(text) => out.help(&text).map(|()| ExitCode::SUCCESS).map_err(CommandError::from),
        Parsed::Missing(text) if !is_json => {
            wrapped(&text, None).lines().for_each(|line| out.note(line));
            Ok(ExitCode::from(2))
        }
        Parsed::Missing(_) => {
            Err(CommandError::Usage("a command is missing; see `tidemill --help`".to_owned()))
        }
        Parsed::Wrong(error) => Err(error),
    };
    let code = ended.unwrap_or_else(|error| {
        match error.document() {
            Some(document) if is_json => out.problem(&document),
            _ => error.words().into_iter().for_each(|line| out.error(line)),
        }
        error.exit_code()
    });
    logging::finish();
    out.end(code)
}

/// What the arguments ask for.
enum Parsed {
    Arguments(Box<Arguments>),
    /// To be told how the program is used.
    Help(String),
    /// Nothing, so that the help is what is missing.
    Missing(String),
    Wrong(CommandError),
}

fn parse(typed: &[std::ffi::OsString]) -> Parsed {
    let mut program = help::dressed(Arguments::command());
    let parsed = program.clone().try_get_matches_from(typed);
    match parsed.and_then(|matches| Arguments::from_arg_matches(&matches)) {
        Ok(arguments) => Parsed::Arguments(Box::new(arguments)),
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            Parsed::Help(error.render().to_string())
        }
        Err(error) if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Parsed::Missing(error.render().to_string())
        }
        Err(error) => {
            program.build();
            Parsed::Wrong(CommandError::Usage(arguments::problem(&error, &program, typed)))
        }
    }
}

fn execute(arguments: Arguments, is_json: bool, out: &mut Output) -> Ended {
    let logs = match arguments.command {
        Command::Serve(_) | Command::Worker(_) => Logs::ForGood,
        Command::Run(_) => Logs::Once,
        _ if is_json => Logs::Problem,
        _ => Logs::No,
    };
    /// Reads the settings with the command's own flags, then runs it.
    macro_rules! configured {
        ($command:expr) => {{
            let config = settings(arguments.config.as_deref(), $command.flags(), logs, out)?;
            $command.execute(&config, out)
        }};
    }
    match arguments.command {
        Command::Run(command) => configured!(command),
        Command::Serve(command) => configured!(command),
        Command::Worker(command) => configured!(command),
        Command::Submit(command) => configured!(command),
        Command::Jobs(command) => configured!(command),
        Command::Tasks(command) => configured!(command),
        Command::Events(command) => configured!(command),
        Command::Definitions(command) => configured!(command),
        Command::Scripts(command) => configured!(command),
        Command::Subscriptions(command) => configured!(command),
        Command::Executions(command) => configured!(command),
        Command::DeadLetters(command) => configured!(command),
        Command::Errors(command) => configured!(command),
        Command::Parked(command) => configured!(command),
        Command::Usage(command) => configured!(command),
        Command::Health(command) => configured!(command),
        Command::Alerts(command) => configured!(command),
        Command::Keys(command) => configured!(command),
        #[cfg(feature = "aws")]
        Command::Aws(command) => configured!(command),
        #[cfg(not(feature = "aws"))]
        Command::Aws(command) => command.execute(),
        Command::Config(command) => configured!(command),
        Command::Doctor(command) => configured!(command),
        Command::Verify(command) => configured!(command),
        Command::Salvage(command) => configured!(command),
        Command::Rebuild(command) => configured!(command),
        Command::Export(command) => configured!(command),
        Command::Import(command) => configured!(command),
        Command::Completions(command) => command.execute(out),
        Command::Schema(command) => command.execute(out),
        Command::AgentTask(command) => command.execute(),
    }
}

/// Whose lines have the form that is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Logs {
    No,
    /// What goes wrong is one document for a program, and nothing beside it.
    Problem,
    /// It ends with its work.
    Once,
    /// It stays, and its lines are read later: they have time and level.
    ForGood,
}

/// Reads everything that can be set, once. Warnings go to standard error.
fn settings(
    file: Option<&Path>,
    flags: Flags,
    logs: Logs,
    out: &mut Output,
) -> Result<Resolved, CommandError> {
    // What is not text is no value of ours.
    let environment = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    let resolved = Sources::read(Path::new("."), environment, file, flags)?.resolve()?;
    if matches!(logs, Logs::Once | Logs::ForGood) {
        resolved.values.log_format.set(logs == Logs::ForGood);
    }
    logging::start(resolved.log_filter(logs == Logs::Problem), resolved.sanitizer());
    out.set_colours(resolved.colours());
    for warning in &resolved.warnings {
        out.warn(format_args!("tidemill: {warning}"));
    }
    Ok(resolved)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn a_panic_ends_with_code_1() {
        let code = |run: fn() -> ExitCode| format!("{:?}", exit_code_of(run));
        assert_eq!(code(|| panic!("on purpose")), format!("{:?}", ExitCode::from(1)));
        assert_eq!(code(|| ExitCode::from(3)), format!("{:?}", ExitCode::from(3)));
    }

    #[test]
    fn the_arguments_are_consistent_and_the_help_names_exit_codes() {
        let mut command = Arguments::command();
        command.build();
        command.clone().debug_assert();
        for name in ["run", "serve", "verify", "rebuild", "export", "import", "jobs", "doctor", "config"] {
            let help = command.find_subcommand_mut(name).unwrap().render_long_help().to_string();
            assert!(help.contains("Exit codes:") && help.contains("[default: .tidemill]"), "{help}");
        }
    }
}
