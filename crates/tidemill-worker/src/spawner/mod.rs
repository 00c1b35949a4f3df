//! The spawner: one small process beside the server that starts all child processes, watches them and ends them.
//!
//! Forking from a large process copies its page tables, and a parent-death signal follows the forking thread. So the
//! server starts a single-threaded process of its own program once, without forking, and asks it for everything else
//! over a socket. The pipes of a child's output are handed over with the request and never touch the spawner.
//!
//! The spawner adopts orphans (it is a child subreaper), so nothing that a child starts can leave its sight. When the
//! socket closes, because the server ended or was killed, it kills everything and ends. When the spawner itself is
//! killed, its children die by their parent-death signal and the server kills the rest by its mark in the environment.
//!
//! A child may have a deadline: the end of its worker's lease. The spawner kills it then by itself, because a worker that
//! was stopped, or that is cut off, may not be able to, and somebody else begins with the task soon after.
//!
//! Starting a child takes until it has become another program, so there are as many such processes as cores can use.
//!
//! Most small children end a moment after they started. The word of a start waits for that moment, so that the server
//! wakes once and finds what the child said in its pipes, without ever having waited for them.
//!
//! `serve` is the process, `start` how it starts a child, `client` is the server's side, `message` what they say to each
//! other.

mod alarm;
mod child_pipe;
mod client;
mod frame;
mod message;
mod serve;
mod signals;
mod start;
mod trees;

pub use child_pipe::ChildPipe;
pub use client::{Child, ChildEvent, ChildHandle, ChildWatch, Spawner, SpawnerConfig, Starting};
pub use message::{ChildExit, CommandLine, RunAs, SpawnError};
pub use serve::serve;
