//! What a running task prints, as it comes.

use std::time::Duration;

use tidemill_engine::backend::Backend;
use tidemill_engine::commit::TaskKey;
use tidemill_engine::warn_seldom;

use super::{Outlet, StreamPermit};
use crate::admission::caller::Welcome;
use crate::app::App;
use crate::connection::Peer;

/// How long the last lines of a task may follow its end.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Writes what the task prints until its run is over, the reader leaves or is too slow, or the server closes.
pub(crate) async fn follow_log(
    app: App,
    task: TaskKey,
    outlet: Outlet,
    (peer, mut welcome): (Peer, Welcome),
    _permit: StreamPermit,
) {
    let (engine, logs) = (app.engine(), app.engine().live_logs());
    let backend = engine.backend();
    let mut closing = app.closing();
    let mut from = 0;
    loop {
        if !welcome.holds().await {
            return outlet.end("\n[ended: the key was revoked]\n");
        }
        let seen = backend.newest();
        // The state first: what is printed before the end is then read after it.
        let is_over = match engine.task(task.clone()).await {
            Ok(Some(snapshot)) => snapshot.head.is_some_and(|head| head.outcome().is_some()),
            Ok(None) => true,
            Err(error) => {
                warn_seldom!(error, "the lines of a task could not be followed to their end");
                true
            }
        };
        let part = logs.read(&task, from);
        from = part.next;
        if !part.bytes.is_empty() {
            if outlet.send(part.bytes).await.is_err() {
                return outlet.end("\n[dropped: you read too slowly]\n");
            }
            continue;
        }
        if is_over && (part.ended || part.run == 0) {
            return;
        }
        tokio::select! {
            () = logs.grown(&task, from), if !part.ended => {}
            () = backend.committed(seen), if !is_over => {}
            () = tokio::time::sleep(LAST_LINES), if is_over => return,
            () = closing.begun() => return,
            () = welcome.ended() => {}
            () = outlet.closed() => return,
            () = peer.gone() => return,
        }
    }
}
