//! One POST to somebody else: a checked address, no redirects, little time, a small answer.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Request, Uri, header};
use hyper_rustls::{ConfigBuilderExt as _, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::rt::TokioExecutor;

use crate::address::Guard;

/// How long all of it may take, names and handshakes included.
const TIME_MAX: Duration = Duration::from_secs(5);
/// The bytes that an answer may have.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Posts JSON. Certificates are read when they are first needed.
pub(crate) struct Poster {
    tls: OnceLock<Result<rustls::ClientConfig, String>>,
    look_up: Arc<LookUp>,
    time_max: Duration,
}

/// Finds the addresses of a name.
type LookUp = dyn Fn(String) -> Found + Send + Sync;
type Found = Pin<Box<dyn Future<Output = io::Result<Vec<SocketAddr>>> + Send>>;

impl Default for Poster {
    fn default() -> Self {
        let look_up = |name: String| -> Found {
            Box::pin(async move { Ok(tokio::net::lookup_host((name.as_str(), 0)).await?.collect()) })
        };
        Self { tls: OnceLock::new(), look_up: Arc::new(look_up), time_max: TIME_MAX }
    }
}

/// What is to be sent.
pub(crate) struct Post {
    pub(crate) uri: Uri,
    pub(crate) guard: Guard,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: String,
}

impl Poster {
    /// The answer, if it says that all went well. An error says what happened, without the address.
    pub(crate) async fn post(&self, post: Post) -> Result<Bytes, String> {
        match tokio::time::timeout(self.time_max, self.exchange(post)).await {
            Ok(done) => done,
            Err(_) => Err(format!("no answer came within {} s", self.time_max.as_secs())),
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
        let look_up = Arc::clone(&self.look_up);
        let resolver = tower::service_fn(move |name: Name| resolve(look_up(name.as_str().to_owned()), guard));
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
async fn resolve(found: Found, guard: Guard) -> io::Result<std::vec::IntoIter<SocketAddr>> {
    let found = found.await?;
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

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Instant;

    use super::*;

    type Answer = Box<dyn Fn(TcpStream) + Send>;

    /// A listener that answers each request in its way: its port, and what it was asked.
    fn listen(answer: impl Fn(TcpStream) + Send + 'static) -> (u16, Arc<Mutex<Vec<String>>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let own = Arc::clone(&asked);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut bytes = [0; 4_096];
                let count = stream.read(&mut bytes).unwrap_or(0);
                own.lock().unwrap().push(String::from_utf8_lossy(&bytes[..count]).into_owned());
                answer(stream);
            }
        });
        (port, asked)
    }

    fn ok(mut stream: TcpStream) {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}");
    }

    fn post(url: &str, guard: Guard) -> Post {
        Post {
            uri: url.parse().unwrap(),
            guard,
            headers: vec![("tidemill-delivery", "1".to_owned())],
            body: "{}".into(),
        }
    }

    /// Names stand for these addresses, whatever they are; the second is how often one was asked for.
    fn with_names(
        of: impl Fn(usize) -> Vec<&'static str> + Send + Sync + 'static,
    ) -> (Poster, Arc<AtomicUsize>) {
        let count: Arc<AtomicUsize> = Arc::default();
        let own = Arc::clone(&count);
        let look_up = move |_: String| -> Found {
            let found = of(own.fetch_add(1, Ordering::SeqCst));
            let found = found.into_iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), 0)).collect();
            Box::pin(async move { Ok(found) })
        };
        (Poster { look_up: Arc::new(look_up), ..Poster::default() }, count)
    }

    #[tokio::test]
    async fn what_a_name_stands_for_is_looked_at_once_and_called() {
        let (port, asked) = listen(ok);
        let url = format!("http://hooks.example.com:{port}/x");
        // All of them must be public, in whatever form and place they come.
        for bad in [
            vec!["127.0.0.1"],
            vec!["93.184.216.34", "127.0.0.1"],
            vec!["::ffff:127.0.0.1"],
            vec!["64:ff9b::7f00:1"],
            vec!["169.254.169.254"],
            vec!["fd00::1", "93.184.216.34"],
        ] {
            let (poster, count) = with_names(move |_| bad.clone());
            let refused = poster.post(post(&url, Guard::Public)).await.unwrap_err();
            assert!(refused.ends_with("is not a public address"), "{refused}");
            assert_eq!(count.load(Ordering::SeqCst), 1);
        }
        assert_eq!(asked.lock().unwrap().len(), 0, "nobody was called");
        // A name that means something else each time it is asked for is asked for once.
        let (poster, count) = with_names(|asked| vec![if asked == 0 { "127.0.0.1" } else { "203.0.113.9" }]);
        poster.post(post(&url, Guard::Anything)).await.unwrap();
        assert_eq!(count.load(Ordering::SeqCst), 1);
        let heard = asked.lock().unwrap().remove(0);
        assert!(heard.contains(&format!("host: hooks.example.com:{port}\r\n")), "{heard}");
    }

    #[tokio::test]
    async fn addresses_without_a_name_are_looked_at_too() {
        let (port, asked) = listen(ok);
        let poster = Poster::default();
        for host in [
            "127.0.0.1",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[::ffff:7f00:1]",
            "127.1",
            "2130706433",
            "localhost",
        ] {
            let url = format!("http://{host}:{port}/x");
            let refused = poster.post(post(&url, Guard::Public)).await.unwrap_err();
            assert!(refused.ends_with("is not a public address"), "{host}: {refused}");
        }
        assert_eq!(asked.lock().unwrap().len(), 0, "nobody was called");
        poster.post(post(&format!("http://127.0.0.1:{port}/x"), Guard::Anything)).await.unwrap();
    }

    #[tokio::test]
    async fn answers_are_short_quick_and_no_redirects() {
        let (elsewhere, asked) = listen(ok);
        let redirect =
            format!("HTTP/1.1 307 X\r\nlocation: http://127.0.0.1:{elsewhere}/\r\ncontent-length: 0\r\n\r\n");
        let endless = |head: &'static str, part: &'static str, pause: Duration| {
            move |mut stream: TcpStream| {
                let _ = stream.write_all(head.as_bytes());
                while stream.write_all(part.as_bytes()).is_ok() {
                    wait(pause);
                }
            }
        };
        let chunked = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        let body = Box::leak(format!("400\r\n{}\r\n", "x".repeat(1_024)).into_boxed_str());
        let answers: [(&str, Answer); 7] = [
            ("answered 307", Box::new(move |mut stream| drop(stream.write_all(redirect.as_bytes())))),
            (
                "answered with more than 65536 bytes, or broke off",
                Box::new(endless(chunked, body, Duration::ZERO)),
            ),
            (
                "answered with more than 65536 bytes, or broke off",
                Box::new(endless(
                    "HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n",
                    "x",
                    Duration::ZERO,
                )),
            ),
            (
                "answered 500",
                Box::new(endless(
                    "HTTP/1.1 500 X\r\ncontent-length: 99999999999\r\n\r\n",
                    body,
                    Duration::ZERO,
                )),
            ),
            // Headers without an end, a body that drips, and silence.
            ("cannot be reached", Box::new(endless("HTTP/1.1 200 OK\r\n", "a: b\r\n", Duration::ZERO))),
            (
                "no answer came within 1 s",
                Box::new(endless(
                    "HTTP/1.1 200 OK\r\ncontent-length: 60000\r\n\r\n",
                    "x",
                    Duration::from_millis(20),
                )),
            ),
            ("no answer came within 1 s", Box::new(wait_for_end)),
        ];
        let poster = Poster { time_max: Duration::from_secs(1), ..Poster::default() };
        for (expected, answer) in answers {
            let (port, _) = listen(answer);
            let begun = Instant::now();
            let failed = poster.post(post(&format!("http://127.0.0.1:{port}/"), Guard::Anything)).await;
            let failed = failed.unwrap_err();
            assert!(failed.starts_with(expected), "{failed}, not {expected}");
            assert!(begun.elapsed() < Duration::from_secs(4), "{expected} took {:?}", begun.elapsed());
        }
        assert_eq!(asked.lock().unwrap().len(), 0, "no redirect is followed");
    }

    #[tokio::test]
    async fn no_header_can_be_smuggled_in() {
        let (port, asked) = listen(ok);
        let poster = Poster::default();
        let mut evil = post(&format!("http://127.0.0.1:{port}/"), Guard::Anything);
        evil.headers.push(("authorization", "Bearer x\r\nevil: yes".to_owned()));
        assert_eq!(poster.post(evil).await.unwrap_err(), "a header cannot be sent");
        for url in ["http://a/x\r\nevil: yes", "http://a/x y", "http://a\r\n.b/"] {
            assert!(url.parse::<Uri>().is_err(), "{url:?}");
        }
        poster
            .post(post(&format!("http://127.0.0.1:{port}/x?a=%0d%0aevil:%20yes"), Guard::Anything))
            .await
            .unwrap();
        let heard = asked.lock().unwrap().remove(0);
        assert!(heard.starts_with("POST /x?a=%0d%0aevil:%20yes HTTP/1.1\r\n"), "{heard}");
        assert!(!heard.contains("\nevil"), "{heard}");
    }

    #[expect(clippy::disallowed_methods, reason = "the other side is slow on purpose")]
    fn wait(time: Duration) {
        if !time.is_zero() {
            std::thread::sleep(time);
        }
    }

    fn wait_for_end(mut stream: TcpStream) {
        let _ = stream.read_to_end(&mut Vec::new());
    }
}
