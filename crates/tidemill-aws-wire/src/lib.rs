//! What clients of AWS put on the wire, and what they expect back: signatures, chunked bodies, items and expressions of
//! tables, forms of queues.
//!
//! Nothing here knows the engine, opens a socket or reads a clock: a request comes in as bytes and values, and the time
//! comes with it.

pub mod dynamodb;
