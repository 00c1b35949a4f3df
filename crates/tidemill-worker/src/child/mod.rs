//! One child process of a task: what it is given, what it says, what it leaves behind, and how its end is understood.

pub(crate) mod agent_home;
pub(crate) mod directory;
pub(crate) mod environment;
pub(crate) mod error_record;
pub(crate) mod inner_file;
pub(crate) mod inputs;
pub(crate) mod lines;
pub(crate) mod memory_pressure;
pub(crate) mod output_log;
pub(crate) mod protocol;
pub(crate) mod redaction;
pub(crate) mod result;
pub(crate) mod tail;
pub(crate) mod verdict;
