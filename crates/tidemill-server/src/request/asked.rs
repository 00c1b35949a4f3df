//! One request from its beginning to its answer: the id that the answer and the lines of the log about it share.
//!
//! The id is made here. What a client sends as such an id is not used: it would be written into the log.

use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use axum::body::Body;
use axum::http::{HeaderName, HeaderValue, Method, Response};
use tracing::{Instrument as _, Level, debug, debug_span};

/// The header of every answer that has the id.
pub(crate) const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

tokio::task_local! {
    static ASKED: Asked;
}

/// What is being asked.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) id: InstanceId,
    pub(crate) method: Method,
    /// The path as the table of routes has it.
    pub(crate) route: &'static str,
}

/// The id of one request. No two of one process are the same, and processes differ in half of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InstanceId(u128);

impl InstanceId {
    fn next() -> Self {
        static PROCESS: LazyLock<u64> = LazyLock::new(|| {
            let mut bytes = [0; 8];
            // Without random bytes the ids of two processes may be the same, which harms nobody else.
            let _ = getrandom::fill(&mut bytes);
            u64::from_be_bytes(bytes)
        });
        static COUNT: AtomicU64 = AtomicU64::new(1);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let whole = (u128::from(*PROCESS) << 64) | u128::from(count);
        // A UUID whose form is our own: version 8 of RFC 9562.
        let (version, variant) = (0xf << 76, 0x3 << 62);
        Self((whole & !version & !variant) | (0x8 << 76) | (0x2 << 62))
    }

    /// As a problem names it.
    pub(crate) fn urn(self) -> String {
        format!("urn:uuid:{self}")
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |from: u32, bits: u32| (self.0 >> from) & ((1 << bits) - 1);
        write!(f, "{:08x}-{:04x}-{:04x}", part(96, 32), part(80, 16), part(64, 16))?;
        write!(f, "-{:04x}-{:012x}", part(48, 16), part(0, 48))
    }
}

impl Asked {
    /// The request that this code runs for.
    pub(crate) fn current() -> Option<Self> {
        ASKED.try_with(Self::clone).ok()
    }
}

/// Answers a request under an id of its own. One that is asked from within another keeps that one's id.
pub(crate) async fn answered(
    method: Method,
    route: &'static str,
    answer: impl Future<Output = Response<Body>>,
) -> Response<Body> {
    if ASKED.try_with(|_| ()).is_ok() {
        return answer.await;
    }
    let id = InstanceId::next();
    let span = debug_span!("request", instance = %id, %method, route, tenant = tracing::field::Empty);
    let began = tracing::enabled!(Level::DEBUG).then(Instant::now);
    let asked = Asked { id, method, route };
    let mut response = ASKED.scope(asked, answer.instrument(span.clone())).await;
    if let Some(began) = began {
        let duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        debug!(parent: &span, status = response.status().as_u16(), duration_ms, "answered");
    }
    if let Ok(value) = HeaderValue::from_str(&id.to_string()) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_uuids_and_none_is_used_twice() {
        let [first, second] = [InstanceId::next(), InstanceId::next()];
        assert_ne!(first, second);
        for id in [first, second] {
            let text = id.to_string();
            let shape: Vec<usize> = text.split('-').map(str::len).collect();
            assert_eq!(shape, [8, 4, 4, 4, 12], "{text}");
            assert!(text.as_bytes()[14] == b'8' && b"89ab".contains(&text.as_bytes()[19]), "{text}");
        }
    }

    #[tokio::test]
    async fn what_is_asked_from_within_keeps_the_id() {
        let inner = async || {
            let asked = Asked::current().unwrap();
            let inside = answered(Method::GET, "/inner", async { Response::new(Body::empty()) }).await;
            assert!(inside.headers().get(REQUEST_ID).is_none());
            Response::new(Body::from(asked.id.to_string()))
        };
        let response = answered(Method::GET, "/outer", inner()).await;
        let id = response.headers()[REQUEST_ID].clone();
        let body = axum::body::to_bytes(response.into_body(), 100).await.unwrap();
        assert_eq!(id.as_bytes(), &body[..]);
        assert!(Asked::current().is_none());
    }
}
