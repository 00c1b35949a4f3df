//! Who is let in, and how much of it: callers, keys of leases, the server without keys, logins, rates.

pub(crate) mod caller;
pub(crate) mod keyless;
pub(crate) mod lease_keys;
pub(crate) mod login_guard;
pub(crate) mod rate_limit;
