//! Reading bodies: within their size, at a decent pace.

use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::http::StatusCode;
use http_body_util::BodyExt;
use tokio::time::Instant;

use crate::problem::Problem;
use crate::request::body_budget::{Account, Held};

/// The pace that a body must keep, over each span of the patience with it: what came before earns nothing.
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
    account: &Account,
) -> Result<ReadBody, Problem> {
    let mut span = Span { began: Instant::now(), received: 0 };
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
        if !span.keeps_pace(data.len(), patience) {
            return Err(too_slow());
        }
        if received > bytes_max.saturating_add(DISCARDED_MAX) {
            break;
        }
        if received > bytes_max {
            (kept, held) = (Vec::new(), Held::default());
            continue;
        }
        if let Err(full) = account.take(&mut held, data.len()) {
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

/// A stretch of time in which a body must make its way.
struct Span {
    began: Instant,
    received: u64,
}

impl Span {
    /// Counts what came, and tells whether it was enough if the span is over. Then the next one begins.
    fn keeps_pace(&mut self, bytes: usize, patience: Duration) -> bool {
        self.received += bytes as u64;
        let elapsed = self.began.elapsed();
        if elapsed < patience {
            return true;
        }
        let is_enough = self.received >= elapsed.as_secs().saturating_mul(BYTES_PER_SECOND_MIN);
        *self = Self { began: Instant::now(), received: 0 };
        is_enough
    }
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
    // A client that is slower than this may lose the answer.
    let _ = tokio::time::timeout(UNWANTED_PATIENCE, read).await;
}

fn too_slow() -> Problem {
    Problem::new(StatusCode::REQUEST_TIMEOUT, "BODY_TOO_SLOW", "the body came too slowly")
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use hyper::body::Frame;
    use tokio::time::Sleep;

    use super::*;
    use crate::request::body_budget::BodyBudget;

    const PATIENCE: Duration = Duration::from_secs(15);

    /// Comes in pieces, each after a while.
    struct Pieces {
        left: std::vec::IntoIter<(u64, usize)>,
        next: Option<(Pin<Box<Sleep>>, usize)>,
    }

    impl HttpBody for Pieces {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            if self.next.is_none() {
                let Some((seconds, bytes)) = self.left.next() else { return Poll::Ready(None) };
                self.next = Some((Box::pin(tokio::time::sleep(Duration::from_secs(seconds))), bytes));
            }
            let Some((sleep, bytes)) = &mut self.next else { return Poll::Pending };
            let bytes = *bytes;
            std::task::ready!(sleep.as_mut().poll(cx));
            self.next = None;
            Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![b'x'; bytes])))))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn haste_at_first_earns_no_slowness_later() {
        let account = BodyBudget::new(1 << 30, 1 << 24, 0).account(None);
        for (name, pieces, is_read) in [
            ("at once", vec![(0, 1 << 20)], true),
            ("a little, after a while", vec![(10, 100), (4, 100)], true),
            ("at the pace", vec![(5, 5 * 1_024); 30], true),
            ("in bursts", vec![(14, 30 * 1_024); 10], true),
            ("a trickle", vec![(10, 1); 30], false),
            ("a lot, then a trickle", [vec![(0, 1 << 20)], vec![(10, 1); 30]].concat(), false),
            ("a lot, then silence", vec![(0, 1 << 20), (16, 1)], false),
        ] {
            let body = Body::new(Pieces { left: pieces.into_iter(), next: None });
            let read = read(body, 1 << 24, PATIENCE, &account).await;
            assert_eq!(read.is_ok(), is_read, "{name}");
            if let Err(problem) = read {
                assert_eq!(problem.code, "BODY_TOO_SLOW", "{name}");
            }
        }
    }
}
