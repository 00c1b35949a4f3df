//! A collector of telemetry, whose address the operator set.

use axum::http::Uri;

use crate::address::Guard;
use crate::post::{Post, Poster};

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

    pub async fn send(&self, body: String) -> Result<(), String> {
        let uri = self.uri.clone().ok_or_else(|| "the address is not a URL".to_owned())?;
        let post = Post { uri, guard: Guard::Anything, headers: self.headers.clone(), body };
        self.poster.post(post).await.map(drop)
    }
}
