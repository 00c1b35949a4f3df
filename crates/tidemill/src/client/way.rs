//! The ways to the API: a server, or the routes in this process.

use axum::body::Bytes;
use axum::http::Response;
use serde::de::DeserializeOwned;
use tidemill_api::Page;
use tidemill_api::client::{Body, Call, ClientError, HttpClient, Query, bytes_of, json_of, succeeded};

use super::LocalWay;

/// A list is read in pages of this many.
const PAGE: usize = 200;

/// The way to the API that answers. Clones share connections.
#[derive(Clone)]
pub(crate) enum Client {
    Http(Box<HttpClient>),
    Local(LocalWay),
}

impl Client {
    /// Sends a call. An answer that says no is an error.
    pub(crate) async fn send(&self, call: Call) -> Result<Response<Body>, ClientError> {
        match self {
            Self::Http(client) => client.send(call).await,
            Self::Local(way) => succeeded(way.send(call).await?).await,
        }
    }

    pub(crate) async fn bytes(&self, call: Call) -> Result<Bytes, ClientError> {
        bytes_of(self.send(call).await?).await
    }

    pub(crate) async fn json<T: DeserializeOwned>(&self, call: Call) -> Result<T, ClientError> {
        json_of(&self.bytes(call).await?)
    }

    pub(crate) async fn get<T: DeserializeOwned>(&self, path: impl Into<String>) -> Result<T, ClientError> {
        self.json(Call::get(path)).await
    }

    /// A list from its first page on, up to `limit` items.
    pub(crate) async fn list<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &Query,
        limit: usize,
    ) -> Result<Vec<T>, ClientError> {
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let wanted = (limit - items.len()).min(PAGE);
            let query = query.clone().set("limit", wanted).maybe("cursor", cursor.as_ref());
            let page: Page<T> = self.get(query.on(path)).await?;
            items.extend(page.items);
            cursor = page.next_cursor;
            if cursor.is_none() || items.len() >= limit {
                items.truncate(limit);
                return Ok(items);
            }
        }
    }

    /// Where it is, for people.
    pub(crate) fn place(&self) -> String {
        match self {
            Self::Http(client) => client.origin().to_owned(),
            Self::Local(way) => way.place(),
        }
    }

    /// Looks after bulks in this process, if no server does.
    pub(crate) fn start_triage(&self) -> Option<crate::node::Triage> {
        match self {
            Self::Http(_) => None,
            Self::Local(way) => Some(way.start_triage()),
        }
    }

    /// Whether nobody is at work while this process asks.
    pub(crate) fn is_local(&self) -> bool {
        matches!(self, Self::Local(way) if way.is_alone())
    }
}
