//! How much of everything is read before a request is refused: a stranger decides what comes in, and how much of it.

/// How long an `Authorization` header may be.
pub const AUTHORIZATION_BYTES_MAX: usize = 8 * 1024;
/// How long a credential may be: key id, day, region, service and terminator.
pub const CREDENTIAL_BYTES_MAX: usize = 256;
/// How many headers may be signed.
pub const SIGNED_HEADERS_MAX: usize = 128;
/// How many headers a request may have.
pub const HEADERS_MAX: usize = 256;
/// How long all names and values of headers may be together.
pub const HEADERS_BYTES_MAX: usize = 64 * 1024;
/// How long a path may be as it is sent. A key of 1,024 bytes, each of them encoded, fits.
pub const PATH_BYTES_MAX: usize = 8 * 1024;
/// How long a query may be as it is sent.
pub const QUERY_BYTES_MAX: usize = 16 * 1024;
/// How many parameters a query may have.
pub const QUERY_PARAMETERS_MAX: usize = 256;
/// How long a presigned address may be good for: seven days.
pub const EXPIRES_SECS_MAX: u64 = 604_800;
