//! Where messages for an operator go.

use std::fmt;
use std::sync::Arc;

/// Takes sentences for an operator. They are warnings in the log of the process unless somebody else listens.
#[derive(Clone, Default)]
pub struct Tell(Option<Arc<Say>>);

type Say = dyn Fn(&str) + Send + Sync;

impl Tell {
    pub fn new(say: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(say)))
    }

    pub(crate) fn say(&self, sentence: &str) {
        if let Some(say) = &self.0 {
            say(sentence);
        } else {
            tracing::warn!("{sentence}");
        }
    }
}

impl fmt::Debug for Tell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tell")
    }
}
