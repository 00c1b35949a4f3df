//! The metrics of a worker on its own, for a scraper. Nothing else is answered there.

use std::io;
use std::net::SocketAddr;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;
use tidemill_engine::metrics::{AttemptMeter, SlotMeter};
use tidemill_server::{METRICS_TEXT, worker_metrics};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Answers until it is dropped.
pub(crate) struct WorkerMetrics {
    pub(crate) address: SocketAddr,
    serving: JoinHandle<()>,
}

impl Drop for WorkerMetrics {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl WorkerMetrics {
    pub(crate) async fn serve(
        address: SocketAddr,
        slots: SlotMeter,
        attempts: AttemptMeter,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let meter = slots.clone();
        let ready = move || {
            let troubled = meter.troubled();
            async move {
                match troubled.first() {
                    None => (StatusCode::OK, "ready\n".to_owned()),
                    Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("nothing is claimed: {why}\n")),
                }
            }
        };
        let metrics = move || {
            let text = worker_metrics(slots.read(), &attempts.read());
            async move { ([(CONTENT_TYPE, METRICS_TEXT)], text) }
        };
        let router = Router::new()
            .route("/metrics", get(metrics))
            .route("/healthz", get(async || "ok\n"))
            .route("/readyz", get(ready));
        // It ends only by being dropped: a connection that breaks is its own matter.
        let serving = tokio::spawn(async move { drop(axum::serve(listener, router).await) });
        Ok(Self { address, serving })
    }
}
