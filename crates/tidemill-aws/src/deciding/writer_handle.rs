//! How the tasks of a process reach the writer, and the state as of the newest item of the log.

use std::sync::Arc;

use tidemill_engine::backend::Fault;
use tokio::sync::{mpsc, oneshot};

use crate::deciding::core::Core;
use crate::deciding::shared_core::SharedCore;
use crate::deciding::writer::Ask;

#[derive(Clone)]
pub(crate) struct WriterHandle {
    pub(crate) core: Arc<SharedCore>,
    pub(crate) asks: mpsc::UnboundedSender<Ask>,
}

/// Asks the writer for something.
pub(crate) async fn ask<T>(
    asks: &mpsc::UnboundedSender<Ask>,
    ask: impl FnOnce(oneshot::Sender<Result<T, Fault>>) -> Ask,
) -> Result<T, Fault> {
    let (answer, answered) = oneshot::channel();
    let gone = || Fault::Stopped("the writer has ended".to_owned());
    asks.send(ask(answer)).map_err(|_| gone())?;
    answered.await.map_err(|_| gone())?
}

impl WriterHandle {
    pub(crate) async fn ask<T>(
        &self,
        ask: impl FnOnce(oneshot::Sender<Result<T, Fault>>) -> Ask,
    ) -> Result<T, Fault> {
        self::ask(&self.asks, ask).await
    }

    /// Looks at the state with everything that any process committed.
    pub(crate) async fn fresh<T>(&self, look: impl FnOnce(&Core) -> T) -> Result<T, Fault> {
        let mut look = Some(look);
        loop {
            self.ask(Ask::CatchUp).await?;
            // If it is not sound, a group failed in between.
            let looked =
                self.core.look(|core| if core.is_sound { look.take().map(|look| look(core)) } else { None });
            if let Some(looked) = looked.await {
                return Ok(looked);
            }
        }
    }
}
