//! A stage: its settings, how a process opens it, what is checked then, and which process has which duty.

pub(crate) mod clock_skew;
pub(crate) mod duty;
mod open;
pub(crate) mod options;
pub(crate) mod parts;
pub(crate) mod settings;
