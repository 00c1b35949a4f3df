//! One POST to somebody else: a checked address, no redirects, little time, a small answer.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, Uri, header};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioExecutor;

use super::address::Guard;

/// How long all of it may take, names and handshakes included.
const TIME_MAX: Duration = Duration::from_secs(5);
/// The bytes that an answer may have.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Posts JSON. Certificates are read when they are first needed.
#[derive(Debug, Default)]
pub(super) struct Poster {
    tls: OnceLock<Result<rustls::ClientConfig, String>>,
}

/// What is to be sent.
pub(super) struct Post {
    pub(super) uri: Uri,
    pub(super) guard: Guard,
    pub(super) headers: Vec<(&'static str, String)>,
    pub(super) body: String,
}

impl Poster {
    /// The answer, if it says that all went well. An error says what happened, without the address.
    pub(super) async fn post(&self, post: Post) -> Result<Bytes, String> {
        match tokio::time::timeout(TIME_MAX, self.exchange(post)).await {
            Ok(done) => done,
            Err(_) => Err(format!("no answer came within {} s", TIME_MAX.as_secs())),
        }
    }

    async fn exchange(&self, post: Post) -> Result<Bytes, String> {
        let Post { uri, guard, headers, body } = post;
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        // The connector asks no resolver about these.
        if let Ok(address) = host.parse::<IpAddr>()
            && !guard.admits(address)
        {
            return Err(refused(address));
        }
        // What was looked at is what is connected to: a second lookup could give something else.
        let resolver = tower::service_fn(move |name: Name| resolve(name, guard));
        let mut connector = HttpConnector::new_with_resolver(resolver);
        connector.enforce_http(false);
        connector.set_nodelay(true);
        let builder = HttpsConnectorBuilder::new().with_tls_config(self.tls()?);
        let connector = builder.https_or_http().enable_http1().wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new()).pool_max_idle_per_host(0).build(connector);
        let mut request = Request::post(uri)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::USER_AGENT, concat!("tidemill/", env!("CARGO_PKG_VERSION")));
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Body::from(body)).map_err(|_| "a header cannot be sent".to_owned())?;
        let answer = client
            .request(request)
            .await
            .map_err(|error| format!("cannot be reached: {}", cause_of(&error)))?;
        let status = answer.status();
        let read = axum::body::to_bytes(Body::new(answer.into_body()), ANSWER_BYTES_MAX).await;
        if !status.is_success() {
            return Err(format!("answered {}", status.as_u16()));
        }
        read.map_err(|_| format!("answered with more than {ANSWER_BYTES_MAX} bytes, or broke off"))
    }

    fn tls(&self) -> Result<rustls::ClientConfig, String> {
        self.tls.get_or_init(native_tls).clone()
    }
}

fn native_tls() -> Result<rustls::ClientConfig, String> {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| error.to_string())?;
    let config = config.with_native_roots().map_err(|error| format!("no certificates: {error}"))?;
    Ok(config.with_no_client_auth())
}

fn refused(address: IpAddr) -> String {
    format!("{address} is not a public address")
}

/// All addresses of a name must be good, or none is taken.
async fn resolve(name: Name, guard: Guard) -> io::Result<std::vec::IntoIter<SocketAddr>> {
    let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
    if let Some(bad) = found.iter().find(|address| !guard.admits(address.ip())) {
        return Err(io::Error::other(refused(bad.ip())));
    }
    Ok(found.into_iter())
}

/// The innermost cause says what happened; the outer ones only that something did.
fn cause_of(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
