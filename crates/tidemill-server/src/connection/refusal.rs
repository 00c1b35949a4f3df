//! Saying that there is no place: a refused client learns why, even when the process has no file left to open.
//!
//! The server keeps a few files in reserve. It closes one of them so that it can accept one more connection, answer
//! it, and close it.

use std::fs::File;
use std::net::TcpStream as StdStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::net::{SocketFlags, accept_with};
use tidemill_engine::warn_seldom;
use tokio::net::{TcpListener, TcpStream};

/// Refusals under way at a time. Further ones are closed without a word.
const REFUSALS_MAX: usize = 64;
/// Files in reserve.
const RESERVE: usize = 4;
/// How long a refused client may take to read the answer.
const PATIENCE: Duration = Duration::from_secs(1);
/// How much is read of what they sent meanwhile. A connection that is closed with bytes unread takes the answer with it.
const UNREAD_MAX: usize = 128 * 1024;

/// What a client reads when there is no place for it.
pub(super) const FULL: &str = concat!(
    "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\n",
    "x-content-type-options: nosniff\r\ncache-control: no-store\r\n",
    "content-security-policy: default-src 'none'; frame-ancestors 'none'\r\nreferrer-policy: no-referrer\r\n",
    "x-frame-options: DENY\r\ncross-origin-resource-policy: same-origin\r\n",
    "connection: close\r\ncontent-length: 174\r\n\r\n",
    r#"{"type":"urn:tidemill:problem:TOO_MANY_CONNECTIONS","title":"Service Unavailable","status":503,"#,
    r#""code":"TOO_MANY_CONNECTIONS","detail":"all connections are busy","details":[]}"#,
);

#[derive(Debug, Clone)]
pub(super) struct Refusals {
    under_way: Arc<AtomicUsize>,
    reserve: Arc<Mutex<Vec<File>>>,
}

impl Refusals {
    pub(super) fn new() -> Self {
        let refusals = Self { under_way: Arc::default(), reserve: Arc::default() };
        refusals.refill();
        refusals
    }

    /// Tells a client that there is no place for it.
    pub(super) fn refuse(&self, stream: Arc<TcpStream>) {
        warn_seldom!("all places are taken", "a connection is refused");
        if self.under_way.fetch_add(1, Ordering::AcqRel) >= REFUSALS_MAX {
            self.under_way.fetch_sub(1, Ordering::AcqRel);
            return;
        }
        let refusals = self.clone();
        tokio::spawn(async move {
            // Whether the client hears it is its own matter.
            let _ = tokio::time::timeout(PATIENCE, send_refusal(&stream)).await;
            drop(stream);
            refusals.under_way.fetch_sub(1, Ordering::AcqRel);
            refusals.refill();
        });
    }

    /// Takes one connection by means of the reserve and refuses it. False when nobody waits or nothing is left.
    pub(super) fn refuse_next(&self, listener: &TcpListener) -> bool {
        let spare = self.reserve.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let Some(spare) = spare else { return false };
        drop(spare);
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let stream = accept_with(listener, flags).map(StdStream::from).map(TcpStream::from_std);
        let Ok(Ok(stream)) = stream else {
            self.refill();
            return false;
        };
        self.refuse(Arc::new(stream));
        true
    }

    /// Puts back what was taken out of the reserve, as far as there are files.
    fn refill(&self) {
        let mut reserve = self.reserve.lock().unwrap_or_else(PoisonError::into_inner);
        while reserve.len() < RESERVE {
            let Ok(file) = File::open("/dev/null") else { return };
            reserve.push(file);
        }
    }
}

/// Says it, and listens until the client has heard it.
async fn send_refusal(stream: &TcpStream) -> std::io::Result<()> {
    let mut unsent = FULL.as_bytes();
    while !unsent.is_empty() {
        stream.writable().await?;
        match stream.try_write(unsent) {
            Ok(count) => unsent = &unsent[count..],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    rustix::net::shutdown(stream, rustix::net::Shutdown::Write)?;
    let (mut buffer, mut received) = ([0; 4096], 0);
    while received < UNREAD_MAX {
        stream.readable().await?;
        match stream.try_read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => received += count,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_refusal_is_a_complete_answer() {
        let (head, body) = FULL.split_once("\r\n\r\n").unwrap();
        assert!(head.ends_with(&format!("content-length: {}", body.len())), "{}", body.len());
        let problem: crate::api::ProblemDocument = serde_json::from_str(body).unwrap();
        assert_eq!((problem.status, &*problem.code), (503, "TOO_MANY_CONNECTIONS"));
    }
}
