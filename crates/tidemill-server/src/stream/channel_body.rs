//! A body that is filled piece by piece.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame};
use tokio::sync::mpsc;

/// Pieces that wait for a slow reader.
const PIECES_MAX: usize = 32;

/// Where a stream writes.
pub(crate) struct Outlet {
    pieces: mpsc::Sender<Bytes>,
    /// Room for the last words, kept from the start.
    farewell: Option<mpsc::OwnedPermit<Bytes>>,
    patience: Duration,
}

/// Nobody reads, or not fast enough.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unread;

struct ChannelBody(mpsc::Receiver<Bytes>);

/// A body and where it is filled. A reader may leave the queue full for as long as `patience`.
pub(crate) fn channel(patience: Duration) -> (Outlet, Body) {
    let (pieces, receiver) = mpsc::channel(PIECES_MAX + 1);
    let farewell = pieces.clone().try_reserve_owned().ok();
    (Outlet { pieces, farewell, patience }, Body::new(ChannelBody(receiver)))
}

impl Outlet {
    /// Adds a piece, waiting for room as long as a reader may take.
    pub(crate) async fn send(&self, piece: impl Into<Bytes>) -> Result<(), Unread> {
        match tokio::time::timeout(self.patience, self.pieces.send(piece.into())).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(Unread),
        }
    }

    /// Adds the last words, for which there is always room, and ends the body.
    pub(crate) fn end(mut self, words: impl Into<Bytes>) {
        if let Some(permit) = self.farewell.take() {
            permit.send(words.into());
        }
    }

    /// Waits until nobody reads any more.
    pub(crate) async fn closed(&self) {
        self.pieces.closed().await;
    }
}

impl HttpBody for ChannelBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reader_who_stands_still_is_told_and_dropped() {
        let (outlet, body) = channel(Duration::from_secs(1));
        let mut sent = 0;
        while outlet.send("x").await.is_ok() {
            sent += 1;
        }
        assert_eq!(sent, PIECES_MAX);
        outlet.end("too slow");
        let all = body.collect().await.unwrap().to_bytes();
        assert_eq!(all, format!("{}too slow", "x".repeat(PIECES_MAX)));
    }

    #[tokio::test]
    async fn a_reader_who_left_is_noticed() {
        let (outlet, body) = channel(Duration::from_secs(1));
        drop(body);
        outlet.closed().await;
        assert_eq!(outlet.send("x").await, Err(Unread));
    }
}
