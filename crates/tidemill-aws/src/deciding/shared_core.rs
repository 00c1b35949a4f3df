//! The core for all tasks of a process: the writer takes it away for as long as a group needs, everybody else looks at it for a moment.
//!
//! Not a lock with a queue: such a lock may be handed to a future that nobody polls, and then nobody has it. Here a
//! waiter has nothing, and looks again when the core is back.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, PoisonError};

use tidemill_engine::notice::Notice;

use crate::deciding::core::Core;

pub(crate) struct SharedCore {
    /// `None` while it is taken.
    core: Mutex<Option<Box<Core>>>,
    back: Notice,
}

/// The core, which goes back when this is dropped.
pub(crate) struct TakenCore {
    core: Option<Box<Core>>,
    home: Arc<SharedCore>,
}

impl SharedCore {
    pub(crate) fn new(core: Core) -> Arc<Self> {
        Arc::new(Self { core: Mutex::new(Some(Box::new(core))), back: Notice::default() })
    }

    /// Takes the core away.
    pub(crate) async fn take(self: &Arc<Self>) -> TakenCore {
        loop {
            let back = self.back.listen();
            let found = self.core.lock().unwrap_or_else(PoisonError::into_inner).take();
            if found.is_some() {
                return TakenCore { core: found, home: Arc::clone(self) };
            }
            back.await;
        }
    }

    /// Looks at the core as soon as it is there.
    pub(crate) async fn look<T>(&self, look: impl FnOnce(&mut Core) -> T) -> T {
        loop {
            let back = self.back.listen();
            if let Some(core) = self.core.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
                return look(core);
            }
            back.await;
        }
    }
}

impl Drop for TakenCore {
    fn drop(&mut self) {
        *self.home.core.lock().unwrap_or_else(PoisonError::into_inner) = self.core.take();
        self.home.back.ring();
    }
}

impl Deref for TakenCore {
    type Target = Core;

    fn deref(&self) -> &Core {
        self.core.as_ref().expect("it is here until this is dropped")
    }
}

impl DerefMut for TakenCore {
    fn deref_mut(&mut self) -> &mut Core {
        self.core.as_mut().expect("it is here until this is dropped")
    }
}
