//! Signals that ask this process to stop.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::CommandError;

/// SIGINT and SIGTERM, from when this was made.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
}

impl StopSignals {
    pub(crate) fn listen() -> Result<Self, CommandError> {
        let listen = |kind| {
            signal(kind)
                .map_err(|error| CommandError::Failed(format!("signals cannot be listened to: {error}")))
        };
        Ok(Self { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())? })
    }

    /// The next one.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}
