//! Messages for open tasks that have none.

use tidemill_engine::backend::Fault;
use tidemill_engine::commit::{Message, MessageId};
use tidemill_engine::id_source::IdSource;
use tidemill_model::{TaskState, Timestamp};

use crate::log::{Entry, Group};
use crate::store::Store;
use crate::store::control::Control;

impl Store {
    /// Enqueues every task that waits for a worker and has no message. Says how many there were.
    pub(super) fn renew_messages(&mut self, now: Timestamp) -> Result<u64, Fault> {
        let state = &self.decider.state;
        let mut ids = IdSource::new(self.options.seed ^ now.millis());
        let mut group = Group::new();
        let mut controls = Vec::new();
        for key in state.live_after(None) {
            let Some(task) = state.task(key) else { continue };
            let Some(head) = task.entry.head.as_ref() else { continue };
            let has_message = task.entry.message.is_some_and(|message| state.queue().get(message).is_some());
            if has_message || head.state != TaskState::Queued {
                continue;
            }
            let id = MessageId(ids.event_id(now).as_u128());
            let message = Message {
                id,
                task: key.clone(),
                run: head.run,
                not_before: now,
                priority: 0,
                key: None,
                wait_millis: 0,
            };
            let mut bytes = Vec::new();
            Control::Enqueue(message).encode(&mut bytes);
            group.push_control(&bytes);
            controls.push(bytes);
        }
        if group.is_empty() {
            return Ok(0);
        }
        let appended = self.log.append(&group)?;
        self.log.sync()?;
        self.log.publish(&group, appended)?;
        for bytes in &controls {
            self.decider.replay(&Entry::Control(bytes))?;
        }
        Ok(controls.len() as u64)
    }
}
