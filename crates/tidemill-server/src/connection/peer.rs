//! The other end of a connection, as far as a waiting request must know of it.

use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// The sender of a request. A request that is handled in process has nobody at the other end; dropping it is enough.
#[derive(Debug, Clone, Default)]
pub(crate) struct Peer {
    stream: Option<Arc<TcpStream>>,
    /// Closed once the sender may stay no longer.
    stay: Option<watch::Receiver<()>>,
}

impl Peer {
    pub(super) fn new(stream: Arc<TcpStream>) -> Self {
        Self { stream: Some(stream), stay: None }
    }

    /// The same peer, which counts as gone once `stay` is closed.
    pub(crate) fn staying(self, stay: Option<watch::Receiver<()>>) -> Self {
        Self { stay, ..self }
    }

    /// Waits until the other end closed its side. What it may have sent meanwhile is not touched.
    pub(crate) async fn gone(&self) {
        let left = async {
            if let Some(stream) = &self.stream
                && !matches!(stream.peek(&mut [0]).await, Ok(1..))
            {
                return;
            }
            // Either nobody can go, or there is a further request behind this one and the end cannot be seen.
            std::future::pending::<()>().await;
        };
        let sent_away = async {
            match self.stay.clone() {
                Some(mut stay) => while stay.changed().await.is_ok() {},
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = left => {}
            () = sent_away => {}
        }
    }

    /// Whether the other end has closed its side by now. Asks the system itself, which knows before the runtime does.
    pub(crate) fn is_gone(&self) -> bool {
        if self.stay.as_ref().is_some_and(|stay| stay.has_changed().is_err()) {
            return true;
        }
        let Some(stream) = &self.stream else { return false };
        match recv(stream, &mut [0_u8][..], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
            Ok((_, count)) => count == 0,
            Err(error) => !matches!(error, Errno::AGAIN | Errno::INTR),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_peer_is_gone_once_it_closed_its_side() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let peer = Peer::new(Arc::new(listener.accept().await.unwrap().0));
        assert!(!peer.is_gone());
        client.shutdown().await.unwrap();
        peer.gone().await;
        assert!(peer.is_gone());
        assert!(!Peer::default().is_gone(), "nobody cannot leave");
    }

    #[tokio::test]
    async fn a_peer_with_more_to_say_is_there() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let server = Arc::new(listener.accept().await.unwrap().0);
        client.write_all(b"GET").await.unwrap();
        server.readable().await.unwrap();
        assert!(!Peer::new(server).is_gone());
    }
}
