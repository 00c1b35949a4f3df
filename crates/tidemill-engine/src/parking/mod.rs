//! Parking: a task or execution that failed for good waits for somebody, and goes on when somebody says how.

pub(crate) mod park;
pub(crate) mod unpark;
pub(crate) mod wait;
