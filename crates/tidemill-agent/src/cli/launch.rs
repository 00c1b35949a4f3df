//! The moment between this process and the CLI: a process that ties its life to ours and then becomes the CLI.
//!
//! A process that gets SIGKILL has no time to end the CLI, which would continue to run and cost money. The kernel
//! ends it instead, if the CLI itself asked for that, which only a process of ours in its place can do.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, getppid, parent_process_death_signal, set_parent_process_death_signal};

/// How a launcher that cannot become the CLI says so on stderr, followed by the number of the error.
const FAILED: &str = "tidemill: the CLI cannot be started: error ";
/// The exit status of one that cannot.
const NOT_STARTED: u8 = 127;

/// The first argument of a process that is a launcher. [`become_cli`] takes what follows.
pub const LAUNCHER: &str = "agent-exec";
/// The program of this process, also when its file was replaced meanwhile.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// A command that becomes `program` and is killed when this process ends. The thread that starts it must not end before.
pub(crate) fn tied(program: &Path) -> Command {
    let mut command = Command::new(OWN_PROGRAM);
    command.arg0("tidemill").arg(LAUNCHER).arg(std::process::id().to_string()).arg(program);
    command
}

/// Becomes the program that `arguments` name after the number of the parent process, with what follows as its arguments.
/// It is killed when that parent ends. This returns only if it cannot be done.
pub fn become_cli(mut arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let parent = arguments.next().and_then(|parent| parent.to_str()?.parse().ok());
    let error = match (parent, arguments.next()) {
        (Some(parent), Some(program)) => match die_with(parent) {
            Ok(()) => Command::new(program).args(arguments).exec(),
            Err(error) => error,
        },
        _ => rustix::io::Errno::INVAL.into(),
    };
    let _ = writeln!(io::stderr(), "{FAILED}{} ({error})", error.raw_os_error().unwrap_or_default());
    ExitCode::from(NOT_STARTED)
}

fn die_with(parent: i32) -> io::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    if Pid::as_raw(getppid()) != parent {
        // It died before the signal was set.
        return Err(rustix::io::Errno::SRCH.into());
    }
    Ok(())
}

/// Why a launcher could not become the CLI, by its exit status and what it printed.
pub(crate) fn failure_of(code: i32, stderr: &str) -> Option<io::Error> {
    if code != i32::from(NOT_STARTED) {
        return None;
    }
    let number = stderr.strip_prefix(FAILED)?.split(' ').next()?.parse().ok()?;
    Some(io::Error::from_raw_os_error(number))
}

/// Our parent may have asked the kernel to kill us when it ends. We would leave the CLI's tools behind, which have
/// their own process groups. So the kernel sends us a signal that we can handle instead, and we end the tools.
pub(crate) fn outlive_parent() {
    if let Ok(Some(Signal::KILL)) = parent_process_death_signal() {
        // On failure we die at once, and the CLI with us.
        let _ = set_parent_process_death_signal(Some(Signal::TERM));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_launcher_says_that_it_failed() {
        let printed = format!("{FAILED}2 (No such file or directory)\n");
        assert_eq!(failure_of(127, &printed).unwrap().kind(), io::ErrorKind::NotFound);
        assert!(failure_of(1, &printed).is_none());
        assert!(failure_of(127, "sh: claude: not found").is_none());
        assert!(failure_of(127, FAILED).is_none());
    }
}
