//! Doors for the fuzzer. Not part of the library.

use crate::child::lines::LineSplitter;
use crate::child::protocol;

/// Reads bytes as a child's output, in pieces whose sizes the first byte tells, as a worker does.
pub fn child_output(bytes: &[u8]) {
    let Some((first, rest)) = bytes.split_first() else { return };
    let mut splitter = LineSplitter::with_limit(4_096);
    let mut count = 0_usize;
    for piece in rest.chunks(usize::from(*first) + 1) {
        splitter.feed(piece, |line| {
            count += line.bytes.len();
            let _ = protocol::parse(line.bytes);
        });
    }
    splitter.finish(|line| {
        count += line.bytes.len();
        let _ = protocol::parse(line.bytes);
    });
    assert!(count <= rest.len(), "lines hold more than was printed");
}
