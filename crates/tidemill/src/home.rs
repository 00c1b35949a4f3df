//! What differs between the backends for those who keep them going.

use tidemill::Embedded;
use tidemill_engine::backend::{Backend, Fault};
use tidemill_engine::engine::Engine;
use tidemill_engine::outbound::Sender;
use tidemill_outbound::HttpSender;

/// A backend that a node can be made of.
pub(crate) trait Home: Backend + Sized {
    type Sender: Sender;

    /// Who carries deliveries: over HTTP, and by whatever else this backend has.
    fn sender(engine: &Engine<Self>, http: HttpSender) -> Self::Sender;

    /// Waits until the store has stopped for good, and says why. A stage on AWS never does.
    fn until_stopped(&self) -> impl Future<Output = Fault> + Send {
        std::future::pending()
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
