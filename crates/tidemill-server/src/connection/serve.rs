//! The accept loop, and the life of one connection.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, Response, StatusCode};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use tidemill_engine::Engine;
use tidemill_engine::backend::Backend;
use tidemill_engine::warn_seldom;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tower::ServiceExt;

use super::refusal::Refusals;
use super::registry::{Registry, Ticket};
use super::timed_stream::{Busy, Patience, TimedStream};
use super::{Connection, OtherEnd, Peer, file_limit};
use crate::app::{App, Closing};
use crate::problem::Problem;
use crate::router::{router, secured};

/// Why the server does not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(
        "{0} can be reached from other machines and there is no API key: \
         create an admin key first, or listen on 127.0.0.1"
    )]
    NeedsKeys(SocketAddr),
    #[error("the listening socket cannot be used")]
    Socket(#[from] std::io::Error),
    #[error("the store cannot say whether there are API keys")]
    Store(#[from] tidemill_engine::engine::EngineError),
}

/// How long a connection that is asked to go may take to send what is left.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long the accept loop rests when the process has no file left to open.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);
/// The bytes of a request's head.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// The header fields of a request.
const HEADERS_MAX: usize = 100;

/// Whether the server may listen on this address: others than this machine only with keys.
pub async fn check_listen<B: Backend>(engine: &Engine<B>, address: SocketAddr) -> Result<(), ServeError> {
    if address.ip().is_loopback() || engine.has_keys().await? {
        return Ok(());
    }
    Err(ServeError::NeedsKeys(address))
}

/// Answers requests until `shutdown` resolves. Then nobody new is let in, streams and long polls end at once, and
/// requests in flight may go on for the grace.
pub async fn serve(
    listener: TcpListener,
    app: App,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    check_listen(app.engine(), listener.local_addr()?).await?;
    let config = app.config();
    let (grace, most) = (config.grace, config.connections_max);
    let patience =
        Patience { idle: config.idle_timeout, head: config.head_timeout, write: config.write_timeout };
    let registry = Registry::new(file_limit::make_room(most));
    let refusals = Refusals::new();
    let (end, ended) = watch::channel(false);
    let guest = Guest {
        router: router(app.clone()),
        patience,
        closing: app.closing(),
        refusals: refusals.clone(),
        ended,
    };
    let mut shutdown = pin!(shutdown);
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.as_mut() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => match registry.admit() {
                Some(ticket) => drop(tokio::spawn(guest.clone().run(stream, ticket))),
                None => refusals.refuse(Arc::new(stream)),
            },
            Err(error) if is_exhausted(&error) => {
                warn_seldom!(error, "no connection can be accepted");
                // Without an idle connection whose place could be taken, the next client is refused with an answer.
                if !registry.dismiss_oldest() && refusals.refuse_next(&listener) {
                    continue;
                }
                tokio::select! {
                    () = shutdown.as_mut() => break,
                    () = registry.left() => {}
                    () = tokio::time::sleep(EXHAUSTED_PAUSE) => {}
                }
            }
            // The client went away while it waited to be let in.
            Err(_) => {}
        }
    }
    drop(listener);
    app.close();
    // A client that is left has had its time. The receivers may all be gone.
    let _ = tokio::time::timeout(grace, registry.emptied()).await;
    let _ = end.send(true);
    registry.emptied().await;
    Ok(())
}

/// Whether the process or the machine has no file left to open.
pub(super) fn is_exhausted(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM]
        .iter()
        .any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

/// What every connection needs.
#[derive(Clone)]
struct Guest {
    router: Router,
    patience: Patience,
    closing: Closing,
    refusals: Refusals,
    /// Turns true when the grace is over.
    ended: watch::Receiver<bool>,
}

impl Guest {
    async fn run(mut self, stream: TcpStream, ticket: Ticket) {
        // Answers are written whole, so small ones need not wait for more. Without it they are only slower.
        let _ = stream.set_nodelay(true);
        let Ok(local) = stream.local_addr() else { return };
        let (stream, ticket, busy) = (Arc::new(stream), Arc::new(ticket), Busy::default());
        let unheard = Arc::clone(&stream);
        let timed = TimedStream::new(Arc::clone(&stream), busy.clone(), self.patience);
        let other_end = Arc::new(OtherEnd::new(Arc::clone(&stream)));
        let in_service = (self.router, Arc::clone(&ticket), busy.clone());
        let service = hyper::service::service_fn(move |mut request: Request<Incoming>| {
            let (router, ticket, busy) = in_service.clone();
            request.extensions_mut().insert(Connection { local, other_end: Arc::clone(&other_end) });
            request.extensions_mut().insert(Peer::new(Arc::clone(&stream)));
            let visit = Visit::begin(ticket, busy);
            async move {
                if head_bytes(&request) > HEAD_BYTES_MAX {
                    let answer = head_too_large();
                    return Ok(answer.map(|body| VisitBody { body, _visit: visit }));
                }
                let Ok(response) = router.oneshot(request.map(Body::new)).await;
                Ok::<_, Infallible>(response.map(|body| VisitBody { body, _visit: visit }))
            }
        });
        let mut connection = pin!(
            http1::Builder::new()
                // A client may say all it has to say and then only listen.
                .half_close(true)
                .max_buf_size(HEAD_BYTES_MAX)
                .max_headers(HEADERS_MAX)
                .serve_connection(TokioIo::new(timed), service)
        );
        tokio::select! {
            // A broken connection is the client's matter.
            _ = connection.as_mut() => return,
            () = ticket.dismissed() => {
                if !busy.has_begun() {
                    // It was let in and heard nothing yet: its request may be on the way.
                    return self.refusals.refuse(unheard);
                }
            }
            () = self.closing.begun() => {}
        }
        connection.as_mut().graceful_shutdown();
        let leaving = async {
            if !busy.is_busy() {
                tokio::time::sleep(FAREWELL).await;
                return;
            }
            // Only a sender that is gone keeps this from resolving, and then there is nobody to wait for.
            let _ = self.ended.wait_for(|ended| *ended).await;
        };
        tokio::select! {
            _ = connection => {}
            () = leaving => {}
        }
    }
}

/// The bytes of a request's head. The parser looks only now and then how many there are, and lets some pass that are too
/// many. Spaces around values do not count.
fn head_bytes<B>(request: &Request<B>) -> usize {
    let uri = request.uri();
    let scheme = uri.scheme_str().map_or(0, |scheme| scheme.len() + 3);
    let authority = uri.authority().map_or(0, |authority| authority.as_str().len());
    let path = uri.path_and_query().map_or(0, |path| path.as_str().len());
    let first = request.method().as_str().len() + scheme + authority + path + "  HTTP/1.1\r\n".len();
    let fields =
        request.headers().iter().map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len());
    first + fields.sum::<usize>() + "\r\n".len()
}

fn head_too_large() -> Response<Body> {
    let detail = format!("the head of the request is larger than {HEAD_BYTES_MAX} bytes");
    let problem = Problem::new(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "HEAD_TOO_LARGE", detail);
    secured(problem.answer(str::to_owned))
}

/// A request in flight, from its head to the last byte of the answer.
struct Visit {
    ticket: Arc<Ticket>,
    busy: Busy,
}

impl Visit {
    fn begin(ticket: Arc<Ticket>, busy: Busy) -> Self {
        busy.turn();
        ticket.busy();
        Self { ticket, busy }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.busy.turn();
        self.ticket.idle();
    }
}

/// An answer's body that ends the visit when it is dropped.
struct VisitBody {
    body: Body,
    _visit: Visit,
}

impl HttpBody for VisitBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
