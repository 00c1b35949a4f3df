//! The API over HTTP.

use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::{Response, Uri, header};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use serde::de::DeserializeOwned;

use super::{Body, Call, ClientError, bytes_of, json_of, succeeded};

/// How long a connection may take to open.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the head of an answer may take. A claim waits up to 30 s for work.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a connection is kept for the next call.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// A server, and the key for it. Clones share connections.
#[derive(Clone)]
pub struct HttpClient {
    pool: Pool<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// Without a slash at the end.
    origin: String,
    key: Option<String>,
}

impl HttpClient {
    pub fn new(url: &str, key: Option<String>) -> Result<Self, ClientError> {
        let origin = url.trim_end_matches('/').to_owned();
        let unusable = |cause: String| ClientError::Unreachable { url: url.to_owned(), cause };
        let uri: Uri = origin.parse().map_err(|error| unusable(format!("not a URL: {error}")))?;
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_nodelay(true);
        connector.set_keepalive(Some(IDLE_TIMEOUT));
        let builder = HttpsConnectorBuilder::new();
        // The certificates of the system are read only where they are needed: that takes a while.
        let builder = if uri.scheme_str() == Some("https") {
            builder.with_native_roots().map_err(|error| unusable(format!("no certificates: {error}")))?
        } else {
            builder.with_tls_config(no_tls().map_err(unusable)?)
        };
        let connector = builder.https_or_http().enable_http1().wrap_connector(connector);
        let pool = Pool::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(connector);
        Ok(Self { pool, origin, key })
    }

    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Sends a call. An answer that says no is an error.
    pub async fn send(&self, call: Call) -> Result<Response<Body>, ClientError> {
        succeeded(self.exchange(call).await?).await
    }

    /// The whole answer to a call.
    pub async fn bytes(&self, call: Call) -> Result<Bytes, ClientError> {
        bytes_of(self.send(call).await?).await
    }

    /// What the answer to a call says.
    pub async fn json<T: DeserializeOwned>(&self, call: Call) -> Result<T, ClientError> {
        json_of(&self.bytes(call).await?)
    }

    async fn exchange(&self, call: Call) -> Result<Response<Body>, ClientError> {
        let endless = call.endless;
        let mut request = call.request(&self.origin)?;
        if let Some(key) = &self.key {
            let value = format!("Bearer {key}");
            let value = value
                .parse()
                .map_err(|_| ClientError::Strange("the key holds a control character".into()))?;
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        let answer = self.pool.request(request);
        let answer = if endless {
            answer.await
        } else {
            tokio::time::timeout(ANSWER_TIMEOUT, answer)
                .await
                .map_err(|_| self.unreachable("no answer came"))?
        };
        answer
            .map(|answer| answer.map(|body| body.map_err(Into::into).boxed_unsync()))
            .map_err(|error| self.unreachable(&cause_of(&error)))
    }

    fn unreachable(&self, cause: &str) -> ClientError {
        ClientError::Unreachable { url: self.origin.clone(), cause: cause.to_owned() }
    }
}

/// For plain HTTP: trusts nobody, and is never asked to.
fn no_tls() -> Result<rustls::ClientConfig, String> {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(rustls::RootCertStore::empty()).with_no_client_auth())
}

/// The innermost cause says what happened; the outer ones only that something did.
fn cause_of(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
