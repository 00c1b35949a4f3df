//! What differs between the backends for the node that keeps them going.

use tidemill::Embedded;
use tidemill_engine::backend::{Backend, Fault};
use tidemill_engine::engine::Engine;
use tidemill_engine::outbound::Sender;
use tidemill_outbound::HttpSender;

/// A backend that a node can be made of.
pub(crate) trait Home: Backend + Sized {
    type Sender: Sender;

    /// The sender of deliveries: over HTTP, and by whatever else this backend has.
    fn sender(engine: &Engine<Self>, http: HttpSender) -> Self::Sender;

    /// Waits until the store has stopped for good, and says why. A stage on AWS never does.
    fn until_stopped(&self) -> impl Future<Output = Fault> + Send {
        std::future::pending()
    }

    /// Writes what the next open would have to read again. For a process that ends in order: what still runs in the background
    /// may keep the store open until the process is gone.
    fn settle(_engine: &Engine<Self>) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Lets go what nobody needs, where the backend does not do that by itself.
    fn tidy(&self) -> impl Future<Output = ()> + Send;
}

impl Home for Embedded {
    type Sender = HttpSender;

    fn sender(_engine: &Engine<Self>, http: HttpSender) -> HttpSender {
        http
    }

    async fn until_stopped(&self) -> Fault {
        Self::until_stopped(self).await
    }

    async fn settle(engine: &Engine<Self>) {
        let engine = engine.clone();
        let settled = tokio::task::spawn_blocking(move || engine.backend().checkpoint()).await;
        if let Ok(Err(fault)) = settled {
            tracing::warn!(error = %fault, "the last checkpoint could not be written: the next open replays the log");
        }
    }

    async fn tidy(&self) {}
}

#[cfg(feature = "aws")]
impl Home for tidemill_aws::Aws {
    type Sender = tidemill_aws::AwsSender<HttpSender>;

    fn sender(engine: &Engine<Self>, http: HttpSender) -> Self::Sender {
        tidemill_aws::AwsSender::new(engine.clone(), http)
    }

    async fn tidy(&self) {
        // What could not be let go now is let go the next time.
        if let Err(error) = self.keep_house().await {
            tidemill_engine::warn_seldom!(error, "what is past its time could not be let go");
        }
    }
}
