//! Commits whose events and tickets are not sent yet: waiting until they are, and sending what other processes left.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidemill_engine::backend::Fault;

use crate::backend::Aws;

impl Aws {
    /// Waits until everything that was committed so far is sent.
    pub async fn all_sent(&self) {
        let end = self.writer.core.look(|core| core.end).await;
        loop {
            let further = self.notices.sent.listen();
            if self.sent.load(Ordering::Acquire) >= end {
                return;
            }
            further.await;
        }
    }

    /// Waits until everything that this process committed is sent, and its tickets have followed. A process that ends
    /// earlier leaves that to others, which notice it after a while.
    pub async fn own_sent(&self) {
        loop {
            let further = self.notices.sent.listen();
            if self.unsent.load(Ordering::Acquire) == 0 {
                break;
            }
            further.await;
        }
        if let Some(tickets) = &self.tickets {
            tickets.have_followed().await;
        }
    }

    /// Sends what others committed and did not send, if the outbox stood still for `patience`. Returns how many
    /// groups.
    pub async fn push_outbox(&self, patience: Duration) -> Result<u64, Fault> {
        let end = self.fresh(|core| core.end).await?;
        let (outbox, log) = (self.outbox.clone(), self.log.clone());
        self.call(async move { outbox.push(&log, end, patience).await }).await
    }
}
