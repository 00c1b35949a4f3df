//! A seeded world that runs the real engine through crashes, clock steps and lost writes.
//!
//! A seed decides everything: what each actor submits, which worker falls silent, when the power fails and which
//! sectors are lost. The engine's decisions are the real ones; only the clock, the disk and the actors are ours.
//! `oracle` states what must hold, and knows nothing of the engine's state.

mod actors;
pub mod clock;
pub mod disk;
pub mod embedded_ledger;
pub mod ledger;
pub mod memory_ledger;
pub mod options;
pub mod oracle;
mod profile;
pub mod rng;
pub mod run;
pub mod seed_list;
mod shape;
pub mod specimen;
mod storage;
mod trace;
pub mod violation;
pub mod world;
