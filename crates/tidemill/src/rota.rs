//! Duties in turn: what one process of a store does at a time, and how it comes to do it.
//!
//! The holder of a data directory has every duty. On AWS several servers share a stage; each duty belongs to one of
//! them, and passes to another when that one is gone.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::config::Role;
use crate::home::Home;
use crate::node::{DutyConfig, Node};

/// Which process has a duty.
pub(crate) trait Rota: Clone + Send + Sync + 'static {
    /// Waits until this process has the duty.
    fn take(&self, duty: &'static str) -> impl Future<Output = ()> + Send;

    /// Keeps the duty, and returns when it is lost.
    fn keep(&self, duty: &'static str) -> impl Future<Output = ()> + Send;

    /// Lets another have it at once.
    fn give_back(&self, duty: &'static str) -> impl Future<Output = ()> + Send;
}

/// The only process there is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Alone;

impl Rota for Alone {
    async fn take(&self, _duty: &'static str) {}

    async fn keep(&self, _duty: &'static str) {
        std::future::pending::<()>().await;
    }

    async fn give_back(&self, _duty: &'static str) {}
}

/// A duty that is done here whenever it is this process's turn. It ends with its handle.
pub(crate) struct OnDuty {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl OnDuty {
    pub(crate) fn start<B: Home, R: Rota>(
        node: &Arc<Node<B>>,
        rota: &R,
        role: Role,
        config: &DutyConfig,
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        let turns = turns(Arc::clone(node), rota.clone(), role, config.clone(), stopped);
        Self { stop, task: tokio::spawn(turns) }
    }

    /// Ends it in order.
    pub(crate) async fn end(mut self) {
        let _ = self.stop.send(true);
        let _ = (&mut self.task).await;
    }
}

impl Drop for OnDuty {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn turns<B: Home, R: Rota>(
    node: Arc<Node<B>>,
    rota: R,
    role: Role,
    config: DutyConfig,
    mut stopped: watch::Receiver<bool>,
) {
    let name = role.name();
    loop {
        tokio::select! {
            () = rota.take(name) => {}
            () = stop_requested(&mut stopped) => return,
        }
        let Some(duty) = node.start_duty(role, &config) else { return };
        tokio::select! {
            // Another does it now.
            () = rota.keep(name) => duty.end(Duration::ZERO).await,
            () = stop_requested(&mut stopped) => {
                // Nobody else begins before running scripts have ended.
                tokio::select! {
                    () = duty.end(config.values.grace) => {}
                    () = rota.keep(name) => {}
                }
                return rota.give_back(name).await;
            }
        }
    }
}

/// Waits for the word to stop. Without a handle it is over too.
async fn stop_requested(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stopped| *stopped).await;
}
