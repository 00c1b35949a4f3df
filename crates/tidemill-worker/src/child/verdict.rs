//! What the end of a child means: which error, of which category, in which words.

use tidemill_engine::engine::WorkReport;
use tidemill_engine::engine::limits::RETRY_DELAY_MILLIS_MAX;
use tidemill_model::{ErrorCategory, Exit};

use super::error_record::ErrorRecord;
use super::tail::last_lines;
use crate::spawner::{ChildExit, SpawnError};

const SIGKILL: i32 = 9;
/// How shells report a child that SIGKILL ended.
const SHELL_SIGKILL: i32 = 128 + SIGKILL;

/// What is known of a child that failed.
#[derive(Debug)]
pub(crate) struct Failed<'a> {
    pub(crate) exit: ChildExit,
    pub(crate) record: Option<&'a ErrorRecord>,
    /// The end of what it printed as errors.
    pub(crate) stderr: &'a str,
    /// The end of its other output, which some programs use for errors.
    pub(crate) stdout: &'a str,
    /// The kernel counted a kill for want of memory while it ran.
    pub(crate) memory_ran_out: bool,
}

impl Failed<'_> {
    pub(crate) fn report(&self) -> WorkReport {
        let nothing = ErrorRecord::default();
        let record = self.record.unwrap_or(&nothing);
        WorkReport::Failed {
            error: self.text(record),
            category: record.failure(Some(self.exit.end), self.stderr).category(),
            retry_after_millis: record.retry_after_millis.map(|millis| millis.min(RETRY_DELAY_MILLIS_MAX)),
            code: record.code.clone(),
            usage: None,
            session_id: None,
        }
    }

    fn text(&self, record: &ErrorRecord) -> String {
        let end = self.end_text();
        if let Some(said) = record.text() {
            return match record.code.as_deref().filter(|code| !code.is_empty() && !said.contains(code)) {
                Some(code) => format!("{said} ({code}, {end})"),
                None => format!("{said} ({end})"),
            };
        }
        let printed = if self.stderr.trim().is_empty() { self.stdout } else { self.stderr };
        match last_lines(printed) {
            told if told.is_empty() => end,
            told => format!("{end}: {told}"),
        }
    }

    fn end_text(&self) -> String {
        match self.exit.end {
            Exit::Signal(SIGKILL) | Exit::Code(SHELL_SIGKILL) if self.memory_ran_out => {
                let mib = self.exit.peak_rss.div_ceil(1024 * 1024);
                format!("killed by the kernel: out of memory (peak {mib} MiB)")
            }
            Exit::Signal(signal) => format!("killed by {}", signal_name(signal)),
            Exit::Code(code) => format!("exit code {code}"),
        }
    }
}

/// An agent that ends well and says nothing has done nothing that anybody can rely on.
pub(crate) fn no_agent_result() -> WorkReport {
    WorkReport::failed("the agent ended without a result", ErrorCategory::Unknown)
}

/// What it means that a child could not be started.
pub(crate) fn not_started(program: &str, error: &SpawnError) -> WorkReport {
    use rustix::io::Errno;
    let category = match error {
        SpawnError::Gone(_) | SpawnError::Died(_) | SpawnError::TooLate => ErrorCategory::ServerError,
        SpawnError::Refused { errno } => match Errno::from_raw_os_error(*errno) {
            // It will not be there, or not be a program, the next time either.
            Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::PERM | Errno::NOEXEC | Errno::ISDIR => {
                ErrorCategory::NotFound
            }
            Errno::TOOBIG | Errno::NAMETOOLONG | Errno::INVAL | Errno::LOOP => ErrorCategory::Validation,
            _ => ErrorCategory::ServerError,
        },
    };
    WorkReport::failed(format!("{program} could not be started: {error}"), category)
}

fn signal_name(signal: i32) -> String {
    let name = match signal {
        1 => "SIGHUP",
        2 => "SIGINT",
        3 => "SIGQUIT",
        4 => "SIGILL",
        5 => "SIGTRAP",
        6 => "SIGABRT",
        7 => "SIGBUS",
        8 => "SIGFPE",
        9 => "SIGKILL",
        11 => "SIGSEGV",
        13 => "SIGPIPE",
        14 => "SIGALRM",
        15 => "SIGTERM",
        24 => "SIGXCPU",
        25 => "SIGXFSZ",
        31 => "SIGSYS",
        _ => return format!("signal {signal}"),
    };
    format!("{name} (signal {signal})")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(end: Exit, stderr: &str, memory_ran_out: bool) -> (String, ErrorCategory) {
        let exit = ChildExit { end, peak_rss: 300 << 20, cpu_micros: 0 };
        let failed = Failed { exit, record: None, stderr, stdout: "out of the ordinary", memory_ran_out };
        let WorkReport::Failed { error, category, .. } = failed.report() else { panic!("a failure") };
        (error, category)
    }

    #[test]
    fn ends_are_told_in_words() {
        for (end, stderr, memory, expected, category) in [
            (Exit::Code(1), "", false, "exit code 1: out of the ordinary", ErrorCategory::Unknown),
            (Exit::Code(1), "ECONNRESET\n", false, "exit code 1: ECONNRESET", ErrorCategory::Network),
            (Exit::Signal(11), "x", false, "killed by SIGSEGV (signal 11): x", ErrorCategory::ServerError),
            (Exit::Signal(34), "x", false, "killed by signal 34: x", ErrorCategory::ServerError),
            (Exit::Signal(9), "x", false, "killed by SIGKILL (signal 9): x", ErrorCategory::ServerError),
            (
                Exit::Signal(9),
                "x",
                true,
                "killed by the kernel: out of memory (peak 300 MiB): x",
                ErrorCategory::ServerError,
            ),
            (
                Exit::Code(137),
                "x",
                true,
                "killed by the kernel: out of memory (peak 300 MiB): x",
                ErrorCategory::ServerError,
            ),
            // Another process was killed meanwhile; this one failed by itself.
            (Exit::Code(1), "TypeError: x", true, "exit code 1: TypeError: x", ErrorCategory::Programming),
        ] {
            assert_eq!(report(end, stderr, memory), (expected.to_owned(), category));
        }
    }

    #[test]
    fn a_childs_own_words_come_first() {
        let record = ErrorRecord {
            name: Some("RateLimitError".into()),
            code: Some("TOO_FAST".into()),
            message: Some("slow down".into()),
            retry_after_millis: Some(u64::MAX),
            ..ErrorRecord::default()
        };
        let exit = ChildExit { end: Exit::Code(1), peak_rss: 0, cpu_micros: 0 };
        let failed =
            Failed { exit, record: Some(&record), stderr: "noise", stdout: "", memory_ran_out: false };
        let WorkReport::Failed { error, category, retry_after_millis, .. } = failed.report() else {
            panic!()
        };
        assert_eq!(error, "RateLimitError: slow down (TOO_FAST, exit code 1)");
        assert_eq!(category, ErrorCategory::RateLimit);
        assert_eq!(retry_after_millis, Some(RETRY_DELAY_MILLIS_MAX));
    }

    #[test]
    fn a_missing_program_is_final_and_a_short_machine_is_not() {
        use rustix::io::Errno;
        for (errno, category) in [
            (Errno::NOENT, ErrorCategory::NotFound),
            (Errno::ACCESS, ErrorCategory::NotFound),
            (Errno::NOEXEC, ErrorCategory::NotFound),
            (Errno::TOOBIG, ErrorCategory::Validation),
            (Errno::AGAIN, ErrorCategory::ServerError),
            (Errno::NOMEM, ErrorCategory::ServerError),
            (Errno::MFILE, ErrorCategory::ServerError),
        ] {
            let error = SpawnError::Refused { errno: errno.raw_os_error() };
            let WorkReport::Failed { category: found, .. } = not_started("x", &error) else { panic!() };
            assert_eq!(found, category, "{errno}");
        }
    }
}
