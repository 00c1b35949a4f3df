//! Reading bodies: within their size, at a decent pace.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::StatusCode;
use http_body_util::BodyExt;
use tokio::time::Instant;

use crate::body_budget::{BodyBudget, Held};
use crate::problem::Problem;

/// The pace that a body must keep after its first moments.
const BYTES_PER_SECOND_MIN: u64 = 1_024;
/// How much of a body that is too large is read and thrown away, so that the client is ready to hear why.
const DISCARDED_MAX: usize = 64 * 1024 * 1024;

/// How much of a body is read that comes with a request that is refused, and for how long.
const UNWANTED_MAX: usize = 1024 * 1024;
const UNWANTED_PATIENCE: Duration = Duration::from_secs(1);

/// A body that was read. Its bytes count until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct ReadBody {
    pub(crate) bytes: Bytes,
    _held: Held,
}

/// The whole body, or what is wrong with it.
pub(crate) async fn read(
    mut body: Body,
    bytes_max: usize,
    patience: Duration,
    budget: &BodyBudget,
) -> Result<ReadBody, Problem> {
    let started = Instant::now();
    let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let mut received: usize = 0;
    let mut held = Held::default();
    let mut kept = Vec::new();
    loop {
        let frame = match tokio::time::timeout(patience, body.frame()).await {
            Err(_) => return Err(too_slow()),
            Ok(None) => break,
            Ok(Some(Err(_))) => {
                return Err(Problem::new(StatusCode::BAD_REQUEST, "BROKEN_BODY", "the body ended too soon"));
            }
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(data) = frame.into_data() else { continue };
        received += data.len();
        let overdue = started.elapsed().saturating_sub(patience).as_secs();
        if (received as u64) < overdue.saturating_mul(BYTES_PER_SECOND_MIN) {
            return Err(too_slow());
        }
        if received > bytes_max.saturating_add(DISCARDED_MAX) {
            break;
        }
        if received > bytes_max {
            (kept, held) = (Vec::new(), Held::default());
            continue;
        }
        if let Err(full) = budget.take(&mut held, data.len()) {
            drop((kept, held));
            discard(body).await;
            return Err(full);
        }
        if kept.capacity() - kept.len() < data.len() {
            // Twice what came, or all that was announced: nothing is set aside for bytes that may never come.
            let room = (kept.len() + data.len()).saturating_mul(2).min(announced.max(received));
            kept.reserve_exact(room.max(received) - kept.len());
        }
        kept.extend_from_slice(&data);
    }
    if received > bytes_max {
        return Err(Problem::too_large(format!("the body is larger than {bytes_max} bytes")));
    }
    Ok(ReadBody { bytes: Bytes::from(kept), _held: held })
}

/// Reads what is left of a body that nobody wants, within limits. A client that is still sending when the connection closes
/// may never see its answer.
pub(crate) async fn discard(mut body: Body) {
    if body.is_end_stream() {
        return;
    }
    let read = async {
        let mut received = 0;
        while let Some(Ok(frame)) = body.frame().await {
            received += frame.data_ref().map_or(0, Bytes::len);
            if received > UNWANTED_MAX {
                return;
            }
        }
    };
    // Whoever is slower than this has to live with it.
    let _ = tokio::time::timeout(UNWANTED_PATIENCE, read).await;
}

fn too_slow() -> Problem {
    Problem::new(StatusCode::REQUEST_TIMEOUT, "BODY_TOO_SLOW", "the body came too slowly")
}
