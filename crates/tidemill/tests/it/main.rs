//! End-to-end tests of the library: real handlers on a real data directory.

mod host;
