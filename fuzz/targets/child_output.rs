//! What a child prints: any bytes, in pieces of any size, are log lines and records, never a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| tidemill_worker::fuzzing::child_output(bytes));
