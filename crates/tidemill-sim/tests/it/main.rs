//! The simulation as a test: the engine keeps its promises, and the simulation would notice if it did not.

mod breaks;
mod budget;
mod determinism;
mod specimen;
