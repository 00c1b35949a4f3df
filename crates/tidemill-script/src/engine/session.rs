//! What one execution has said and asked for so far, and how long it may go on.

use std::cell::{Cell, RefCell};
use std::time::Instant;

use tidemill_model::EventId;

use crate::call::{CallKind, RawCall, check_call, derived_id, id_text};
use crate::execution::{ScriptLogLevel, ScriptLogLine};
use crate::limits::{self, Limits};

/// Shared by the functions that a script can reach. It is emptied before each execution.
pub(super) struct Session {
    /// None until the first execution.
    deadline: Cell<Option<Instant>>,
    timed_out: Cell<bool>,
    limits: Cell<Limits>,
    execution: Cell<EventId>,
    logs: RefCell<Vec<ScriptLogLine>>,
    log_bytes: Cell<usize>,
    logs_truncated: Cell<bool>,
    calls: RefCell<Vec<RawCall>>,
    call_bytes: Cell<usize>,
    /// Promises that were rejected and that nobody has looked at.
    rejections: Cell<usize>,
}

/// What an execution leaves behind.
pub(super) struct Traces {
    pub(super) logs: Vec<ScriptLogLine>,
    pub(super) logs_truncated: bool,
    pub(super) calls: Vec<RawCall>,
}

impl Session {
    pub(super) fn new() -> Self {
        Self {
            deadline: Cell::new(None),
            timed_out: Cell::new(false),
            limits: Cell::new(Limits::default()),
            execution: Cell::new(EventId::from_u128(0)),
            logs: RefCell::default(),
            log_bytes: Cell::new(0),
            logs_truncated: Cell::new(false),
            calls: RefCell::default(),
            call_bytes: Cell::new(0),
            rejections: Cell::new(0),
        }
    }

    pub(super) fn begin(&self, execution: EventId, limits: &Limits, started: Instant) {
        self.deadline.set(Some(started + limits.wall));
        self.timed_out.set(false);
        self.limits.set(*limits);
        self.execution.set(execution);
        self.log_bytes.set(0);
        self.logs_truncated.set(false);
        self.call_bytes.set(0);
        self.rejections.set(0);
        self.logs.borrow_mut().clear();
        self.calls.borrow_mut().clear();
    }

    pub(super) fn end(&self) -> Traces {
        Traces { logs: self.logs.take(), logs_truncated: self.logs_truncated.get(), calls: self.calls.take() }
    }

    /// Whether the time is up. Once it is, it stays so.
    pub(super) fn is_over(&self) -> bool {
        if !self.timed_out.get() && self.deadline.get().is_some_and(|deadline| Instant::now() >= deadline) {
            self.timed_out.set(true);
        }
        self.timed_out.get()
    }

    pub(super) fn count_rejection(&self, handled: bool) {
        let count = self.rejections.get();
        self.rejections.set(if handled { count.saturating_sub(1) } else { count + 1 });
    }

    /// Says in the log that errors were lost, as a forgotten `await` does it.
    pub(super) fn warn_about_rejections(&self) {
        let count = self.rejections.get();
        if count > 0 {
            let text = format!("{count} promises were rejected and nobody waited for them");
            self.emit(ScriptLogLevel::Warn as i32, text, false);
        }
    }

    /// Takes a line of the log. False when no more are taken.
    pub(super) fn emit(&self, level: i32, text: String, cut: bool) -> bool {
        let limits = self.limits.get();
        let mut logs = self.logs.borrow_mut();
        let bytes = self.log_bytes.get() + text.len();
        if logs.len() >= limits.log_lines || bytes > limits.log_bytes {
            self.logs_truncated.set(true);
            return false;
        }
        if cut {
            self.logs_truncated.set(true);
        }
        self.log_bytes.set(bytes);
        logs.push(ScriptLogLine { level: ScriptLogLevel::from_number(level), text });
        true
    }

    /// Takes a call: its id, or `!` and the reason why not. The prelude has looked at the grants; they are looked at again
    /// where the call arrives.
    pub(super) fn enter(&self, kind: i32, subject: Option<String>, json: Option<String>) -> String {
        let Some(kind) = CallKind::from_number(kind) else { return "!there is no such call".to_owned() };
        let mut calls = self.calls.borrow_mut();
        if calls.len() >= limits::CALLS_MAX {
            return format!("!more than {} calls in one execution", limits::CALLS_MAX);
        }
        let call = RawCall { kind, subject: subject.unwrap_or_default(), json: json.unwrap_or_default() };
        if let Err(problem) = check_call(&call) {
            return format!("!{problem}");
        }
        let bytes = self.call_bytes.get() + call.subject.len() + call.json.len();
        if bytes > limits::CALLS_BYTES_MAX {
            return format!("!more than {} bytes in the calls of one execution", limits::CALLS_BYTES_MAX);
        }
        self.call_bytes.set(bytes);
        let id = derived_id(self.execution.get(), calls.len());
        calls.push(call);
        id_text(kind, id)
    }
}
