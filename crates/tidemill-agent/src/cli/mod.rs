//! The Claude Code CLI as a process: where it is, how it is called, what it prints, how it is ended.

pub(crate) mod command_line;
pub(crate) mod launch;
pub(crate) mod processes;
pub(crate) mod program;
pub(crate) mod query;
pub(crate) mod stream;
