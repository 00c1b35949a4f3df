//! The JavaScript engine, as one process uses it. Nothing here knows of processes or sockets.
//!
//! `compiler` turns source into bytecode, `machine` runs it under limits, `arena` is the machine's memory. Bytecode is
//! made and run in the same process and never leaves it: the engine trusts it blindly.

mod arena;
mod bytecode;
pub(crate) mod compiler;
pub(crate) mod machine;
mod session;
