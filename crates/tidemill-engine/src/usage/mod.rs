//! What agents use, and what they may use.

pub(crate) mod budget;
pub(crate) mod charge;
pub(crate) mod view;
