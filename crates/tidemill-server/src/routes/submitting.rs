//! What submissions share: who may bring commands, and idempotency keys.

use sha2::{Digest, Sha256};
use tidemill_engine::engine::{IdempotencyKey, Rights};

use crate::route::Call;

/// What the caller may put into a job.
pub(super) fn rights<B>(call: &Call<B>) -> Rights {
    Rights { inline: call.caller.may_run_inline() }
}

/// The client's promise that requests with its key are the same request. The body counts byte by byte.
pub(super) fn idempotency<B>(call: &Call<B>, route: &str) -> Option<IdempotencyKey> {
    call.inputs.text("Idempotency-Key").map(|key| IdempotencyKey {
        route: route.to_owned(),
        key: key.to_owned(),
        body_hash: Sha256::digest(&call.body).into(),
    })
}
