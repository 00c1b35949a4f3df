//! How many streams each key has open.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

#[derive(Debug, Clone)]
pub(crate) struct StreamLimits {
    most: usize,
    open: Arc<Mutex<HashMap<Box<str>, usize>>>,
}

/// One open stream. Dropping it gives the place back.
#[derive(Debug)]
pub(crate) struct StreamPermit {
    limits: StreamLimits,
    caller: Box<str>,
}

impl StreamLimits {
    pub(crate) fn new(most: usize) -> Self {
        Self { most, open: Arc::default() }
    }

    /// A place for one more stream of this caller, if there is one.
    pub(crate) fn take(&self, caller: &str) -> Option<StreamPermit> {
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let count = open.entry(caller.into()).or_default();
        if *count >= self.most {
            return None;
        }
        *count += 1;
        Some(StreamPermit { limits: self.clone(), caller: caller.into() })
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        let mut open = self.limits.open.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = open.get_mut(&self.caller) {
            *count -= 1;
            if *count == 0 {
                open.remove(&self.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_per_caller_and_come_back() {
        let limits = StreamLimits::new(2);
        let first = limits.take("a").unwrap();
        let _second = limits.take("a").unwrap();
        assert!(limits.take("a").is_none());
        assert!(limits.take("b").is_some());
        drop(first);
        assert!(limits.take("a").is_some());
    }
}
