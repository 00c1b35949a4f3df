//! A double of Slack, which gets the alerts.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::routing::post;
use serde_json::Value;
use tokio::sync::watch;

/// What it does with a post.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mood {
    Takes,
    Refuses,
    /// Says nothing until its mood is another.
    Hangs,
}

#[derive(Clone)]
pub(crate) struct Slack {
    pub(crate) url: String,
    inner: Arc<Inner>,
}

struct Inner {
    mood: watch::Sender<Mood>,
    texts: Mutex<Vec<String>>,
    /// How many posts came, taken or not.
    posts: watch::Sender<usize>,
}

impl Slack {
    pub(crate) async fn start() -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let inner = Arc::new(Inner {
            mood: watch::Sender::new(Mood::Takes),
            texts: Mutex::default(),
            posts: watch::Sender::new(0),
        });
        let router = Router::new().route("/hook", post(take)).with_state(Arc::clone(&inner));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url: format!("http://{address}/hook"), inner }
    }

    pub(crate) fn set(&self, mood: Mood) {
        self.inner.mood.send_replace(mood);
    }

    /// What was taken, in its order.
    pub(crate) fn texts(&self) -> Vec<String> {
        self.inner.texts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Waits until this many posts came.
    pub(crate) async fn posts(&self, count: usize) {
        let mut posts = self.inner.posts.subscribe();
        let came =
            tokio::time::timeout(Duration::from_secs(60), posts.wait_for(|posts| *posts >= count)).await;
        came.expect("somebody posts within a minute").expect("it is there");
    }
}

async fn take(State(inner): State<Arc<Inner>>, body: String) -> StatusCode {
    inner.posts.send_modify(|posts| *posts += 1);
    let mut mood = inner.mood.subscribe();
    let Ok(mood) = mood.wait_for(|mood| *mood != Mood::Hangs).await.map(|mood| *mood) else {
        return StatusCode::SERVICE_UNAVAILABLE;
    };
    if mood == Mood::Refuses {
        return StatusCode::INTERNAL_SERVER_ERROR;
    }
    let body: Value = serde_json::from_str(&body).unwrap_or_default();
    let text = body["text"].as_str().unwrap_or_default().to_owned();
    inner.texts.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    StatusCode::OK
}
