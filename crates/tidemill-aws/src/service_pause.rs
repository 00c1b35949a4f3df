//! Pauses between calls of a service that could not answer.

use std::time::Duration;

use tidemill_model::Backoff;

pub(crate) struct ServicePause(Backoff);

impl Default for ServicePause {
    fn default() -> Self {
        Self(Backoff::new(Duration::from_millis(100), Duration::from_secs(10)))
    }
}

impl ServicePause {
    pub(crate) async fn wait(&mut self) {
        tokio::time::sleep(self.0.pause()).await;
    }
}
