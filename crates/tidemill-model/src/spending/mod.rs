//! What work costs: usage as it is reported, and the budgets that limit it.

pub mod budget;
pub mod usage;
