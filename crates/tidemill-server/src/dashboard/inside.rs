//! Calls of the API from within: the same routes, checks and answers that a client with the caller's key would get.

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tower::ServiceExt;

use crate::admission::caller::Caller;
use crate::api::ProblemDocument;
use crate::connection::Peer;
use crate::problem::{Inside as Known, Problem};

#[derive(Debug, Clone)]
pub(super) struct Inside {
    pub(super) api: Router,
    pub(super) caller: Caller,
    pub(super) peer: Peer,
}

impl Inside {
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Problem> {
        read(self.send(Method::GET, path, None, Bytes::new()).await?).await
    }

    /// Like `get`, but what is not there is no problem.
    pub(super) async fn find<T: DeserializeOwned>(&self, path: &str) -> Result<Option<T>, Problem> {
        match self.get(path).await {
            Ok(found) => Ok(Some(found)),
            Err(problem) if problem.status == StatusCode::NOT_FOUND => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &(impl Serialize + Sync),
    ) -> Result<T, Problem> {
        self.change(Method::POST, path, None, body).await
    }

    /// Any change, with a header if there is one to send.
    pub(super) async fn change<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        header: Option<(HeaderName, String)>,
        body: &(impl Serialize + Sync),
    ) -> Result<T, Problem> {
        let bytes = serde_json::to_vec(body).map_err(|error| Problem::internal(&error))?;
        read(self.send(method, path, header, Bytes::from(bytes)).await?).await
    }

    /// A change whose answer says nothing.
    pub(super) async fn remove(&self, path: &str) -> Result<(), Problem> {
        self.send(Method::DELETE, path, None, Bytes::new()).await.map(drop)
    }

    /// A route's own answer, for what is handed through as it is.
    pub(super) async fn open(&self, path: &str) -> Result<Response<Body>, Problem> {
        self.send(Method::GET, path, None, Bytes::new()).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        header: Option<(HeaderName, String)>,
        body: Bytes,
    ) -> Result<Response<Body>, Problem> {
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = path.parse().map_err(|_| Problem::no_such_route())?;
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some((name, value)) = header {
            headers.insert(name, HeaderValue::from_str(&value).map_err(|error| Problem::internal(&error))?);
        }
        request.extensions_mut().insert(self.caller.clone());
        request.extensions_mut().insert(self.peer.clone());
        let response = match self.api.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        if response.status().is_success() { Ok(response) } else { Err(problem(response).await) }
    }
}

async fn bytes_of(response: Response<Body>) -> Result<Bytes, Problem> {
    let collected = response.into_body().collect().await;
    collected.map(http_body_util::Collected::to_bytes).map_err(|error| Problem::internal(&error))
}

async fn read<T: DeserializeOwned>(response: Response<Body>) -> Result<T, Problem> {
    let bytes = bytes_of(response).await?;
    // An answer without content is read as null, which is what `()` takes.
    let text = if bytes.is_empty() { &b"null"[..] } else { &bytes };
    serde_json::from_slice(text).map_err(|error| Problem::internal(&error))
}

async fn problem(response: Response<Body>) -> Problem {
    let status = response.status();
    let bytes = match bytes_of(response).await {
        Ok(bytes) => bytes,
        Err(problem) => return problem,
    };
    match serde_json::from_slice::<ProblemDocument>(&bytes) {
        Ok(document) => Problem {
            details: document.details,
            inside: Some(Box::new(Known::Logged)),
            ..Problem::new(status, document.code.into_owned(), document.detail)
        },
        Err(error) => Problem::internal(&error),
    }
}
