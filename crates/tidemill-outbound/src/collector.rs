//! A collector of telemetry, whose address the operator set.

use axum::http::Uri;
use tidemill_engine::warn_seldom;

use crate::address::Guard;
use crate::post::{Post, PostError, Poster};

/// What became of something that was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CollectorVerdict {
    Taken,
    /// It may be taken another time.
    Missed,
    /// It will not be taken.
    Refused,
}

pub struct Collector {
    poster: Poster,
    uri: Option<Uri>,
    headers: Vec<(&'static str, String)>,
}

impl Collector {
    pub fn new(url: &str, headers: &[(String, String)]) -> Self {
        // There is one collector, and it lives as long as the process.
        let kept = |name: &String| -> &'static str { Box::leak(name.clone().into_boxed_str()) };
        let headers = headers.iter().map(|(name, value)| (kept(name), value.clone())).collect();
        Self { poster: Poster::default(), uri: url.parse().ok(), headers }
    }

    pub async fn send(&self, body: String) -> CollectorVerdict {
        let Some(uri) = self.uri.clone() else { return CollectorVerdict::Refused };
        let post = Post { uri, guard: Guard::Anything, headers: self.headers.clone(), body };
        match self.poster.post(post).await {
            Ok(_) => CollectorVerdict::Taken,
            // What it does not like it will not like again, but for what says that it has too much to do.
            Err(PostError::Refused(status))
                if (400..500).contains(&status) && !matches!(status, 408 | 429) =>
            {
                CollectorVerdict::Refused
            }
            Err(error) => {
                warn_seldom!(error, "the collector of traces did not take them");
                CollectorVerdict::Missed
            }
        }
    }
}
