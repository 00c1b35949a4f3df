//! Requests and answers as an HTTP API of API Gateway has them (payload format 2.0).
//!
//! An answer is handed over whole. Streams are cut after a while: their clients ask again from where they were.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::header::{CONTENT_TYPE, COOKIE, SET_COOKIE};
use axum::http::{HeaderMap, Request, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http_body_util::BodyExt as _;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::{Deserialize, Serialize};
use tower::ServiceExt as _;

use crate::answer::{Failure, json};

/// What AWS Lambda takes as an answer, JSON included.
const ANSWER_BYTES_MAX: usize = 6_291_556;
/// How much of a body is collected. Base64 makes four bytes of three, and quotes in text become two: the size of the
/// answer is checked again then.
const BODY_BYTES_MAX: usize = 5 << 20;
/// How long a stream may go on, and what is left for its answer.
const STREAM_MAX: Duration = Duration::from_secs(20);
const STREAM_RESERVE: Duration = Duration::from_secs(2);

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GatewayEvent {
    raw_path: String,
    #[serde(default)]
    raw_query_string: String,
    #[serde(default)]
    cookies: Vec<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    request_context: RequestContext,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    is_base64_encoded: bool,
}

#[derive(Debug, Deserialize)]
struct RequestContext {
    http: HttpContext,
}

#[derive(Debug, Deserialize)]
struct HttpContext {
    method: String,
}

#[derive(Debug, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
struct GatewayAnswer {
    status_code: u16,
    headers: BTreeMap<String, String>,
    cookies: Vec<String>,
    body: String,
    is_base64_encoded: bool,
}

/// The router's answer to an event of the gateway.
pub(crate) async fn answer(router: &Router, event: &Bytes, time: Duration) -> Result<Vec<u8>, Failure> {
    let event: GatewayEvent = serde_json::from_slice(event)
        .map_err(|error| Failure::bad_event(format!("this is no request of an HTTP API: {error}")))?;
    let request = request_of(event)?;
    let response = match router.clone().oneshot(request).await {
        Ok(response) => response,
        Err(never) => match never {},
    };
    let told = json(&answer_of(response, time).await)?;
    if told.len() > ANSWER_BYTES_MAX { json(&too_large()) } else { Ok(told) }
}

fn request_of(event: GatewayEvent) -> Result<Request<Body>, Failure> {
    let mut uri = encoded(&event.raw_path);
    if !event.raw_query_string.is_empty() {
        uri.push('?');
        uri.push_str(&event.raw_query_string);
    }
    let mut request = Request::builder().method(event.request_context.http.method.as_str()).uri(uri);
    for (name, value) in &event.headers {
        request = request.header(name, value);
    }
    if !event.cookies.is_empty() && !event.headers.contains_key(COOKIE.as_str()) {
        request = request.header(COOKIE, event.cookies.join("; "));
    }
    let body = match event.body {
        Some(text) if event.is_base64_encoded => STANDARD
            .decode(text)
            .map_err(|error| Failure::bad_event(format!("the body is no base64: {error}")))?,
        Some(text) => text.into_bytes(),
        None => Vec::new(),
    };
    request
        .body(Body::from(body))
        .map_err(|error| Failure::bad_event(format!("the request is none: {error}")))
}

/// All that a path does not hold as it is.
const CODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@')
    .remove(b'/')
    .remove(b'\'');

/// The gateway hands paths over decoded.
fn encoded(path: &str) -> String {
    utf8_percent_encode(path, CODED).to_string()
}

async fn answer_of(response: Response<Body>, time: Duration) -> GatewayAnswer {
    let (parts, body) = response.into_parts();
    let limit = is_stream(&parts.headers).then(|| time.saturating_sub(STREAM_RESERVE).min(STREAM_MAX));
    let Some(bytes) = collected(body, limit).await else {
        return too_large();
    };
    let (body, is_base64_encoded) = match String::from_utf8(bytes) {
        Ok(text) if is_text(&parts.headers) => (text, false),
        Ok(text) => (STANDARD.encode(text), true),
        Err(error) => (STANDARD.encode(error.as_bytes()), true),
    };
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    let mut cookies = Vec::new();
    for (name, value) in &parts.headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        if name == SET_COOKIE {
            cookies.push(value.into_owned());
        } else if let Some(before) = headers.get_mut(name.as_str()) {
            before.push_str(", ");
            before.push_str(&value);
        } else {
            headers.insert(name.as_str().to_owned(), value.into_owned());
        }
    }
    GatewayAnswer { status_code: parts.status.as_u16(), headers, cookies, body, is_base64_encoded }
}

/// All of a body, or of a stream what came within its time; `None` if it is too much.
async fn collected(mut body: Body, limit: Option<Duration>) -> Option<Vec<u8>> {
    let end = limit.map(|limit| tokio::time::Instant::now() + limit);
    let mut bytes = Vec::new();
    loop {
        let frame = match end {
            Some(end) => tokio::time::timeout_at(end, body.frame()).await.unwrap_or(None),
            None => body.frame().await,
        };
        // A body that breaks off ends here: its status is sent already.
        let Some(Ok(frame)) = frame else { return Some(bytes) };
        let Ok(data) = frame.into_data() else { continue };
        if bytes.len() + data.len() > BODY_BYTES_MAX {
            return end.map(|_| bytes);
        }
        bytes.extend_from_slice(&data);
    }
}

fn media(headers: &HeaderMap) -> &str {
    let media = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    media.split(';').next().unwrap_or_default().trim()
}

fn is_stream(headers: &HeaderMap) -> bool {
    media(headers) == "text/event-stream"
}

fn is_text(headers: &HeaderMap) -> bool {
    let media = media(headers);
    media.starts_with("text/")
        || media.ends_with("+json")
        || media.ends_with("+xml")
        || matches!(media, "" | "application/json" | "application/javascript" | "application/x-ndjson")
}

/// The gateway would say no more than that something went wrong.
fn too_large() -> GatewayAnswer {
    let detail = format!(
        "the answer has more than {ANSWER_BYTES_MAX} bytes as AWS Lambda counts them; ask for less at a time"
    );
    problem(500, "ANSWER_TOO_LARGE", "Answer too large", &detail)
}

/// The answer of a stage without keys: no caller that comes through the gateway is on this machine.
pub(crate) fn closed() -> Result<Vec<u8>, Failure> {
    let detail = "this stage has no API key yet; make one with `tidemill keys create`";
    json(&problem(401, "UNAUTHENTICATED", "Unauthorized", detail))
}

fn problem(status: u16, code: &str, title: &str, detail: &str) -> GatewayAnswer {
    let body = serde_json::json!({
        "type": format!("urn:tidemill:problem:{code}"),
        "title": title,
        "status": status,
        "code": code,
        "detail": detail,
    });
    GatewayAnswer {
        status_code: status,
        headers: BTreeMap::from([("content-type".to_owned(), "application/problem+json".to_owned())]),
        cookies: Vec::new(),
        body: body.to_string(),
        is_base64_encoded: false,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::{Method, StatusCode};
    use axum::routing::any;
    use serde_json::{Value, json};

    use super::*;

    const TIME: Duration = Duration::from_secs(30);

    fn event(text: &Value) -> GatewayEvent {
        serde_json::from_value(text.clone()).unwrap()
    }

    async fn asked(router: Router, event: Value) -> Value {
        let event = Bytes::from(event.to_string());
        serde_json::from_slice(&answer(&router, &event, TIME).await.unwrap()).unwrap()
    }

    fn get(path: &str) -> Value {
        json!({ "rawPath": path, "requestContext": { "http": { "method": "GET" } } })
    }

    #[tokio::test]
    async fn a_request_comes_through_whole() {
        let request = request_of(event(&json!({
            "version": "2.0",
            "rawPath": "/v1/tasks/a b%ü/x",
            "rawQueryString": "limit=1&cursor=a%2Fb",
            "cookies": ["a=1", "b=2"],
            "headers": { "authorization": "Bearer k", "content-type": "application/json" },
            "requestContext": { "http": { "method": "POST", "path": "/ignored" } },
            "body": "eyJhIjoxfQ==",
            "isBase64Encoded": true,
        })));
        let request = request.unwrap();
        assert_eq!(request.method(), Method::POST);
        assert_eq!(request.uri().path(), "/v1/tasks/a%20b%25%C3%BC/x");
        assert_eq!(request.uri().query(), Some("limit=1&cursor=a%2Fb"));
        assert_eq!(request.headers()[COOKIE], "a=1; b=2");
        assert_eq!(request.headers()["authorization"], "Bearer k");
        let body = request.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, r#"{"a":1}"#);
    }

    #[tokio::test]
    async fn an_answer_is_text_where_it_can_be() {
        let reply = |media: &'static str, bytes: &'static [u8]| {
            let handle = move || async move {
                let answer = Response::builder().status(StatusCode::CREATED).header(CONTENT_TYPE, media);
                let answer = answer.header("x-a", "1").header("x-a", "2");
                answer.header(SET_COOKIE, "c=1").header(SET_COOKIE, "d=2").body(Body::from(bytes)).unwrap()
            };
            Router::new().route("/", any(handle))
        };
        for (media, bytes, body, is_base64) in [
            ("application/json; charset=utf-8", &b"{}"[..], "{}", false),
            ("application/problem+json", b"{}", "{}", false),
            ("application/octet-stream", b"ab", "YWI=", true),
            ("text/plain", b"\xff", "/w==", true),
        ] {
            let told = asked(reply(media, bytes), get("/")).await;
            assert_eq!((&told["statusCode"], &told["body"]), (&json!(201), &json!(body)), "{media}");
            assert_eq!(told["isBase64Encoded"], is_base64, "{media}");
            assert_eq!((&told["headers"]["x-a"], &told["cookies"]), (&json!("1, 2"), &json!(["c=1", "d=2"])));
        }
    }

    #[tokio::test]
    async fn a_stream_is_cut_and_what_is_too_large_is_told() {
        let endless = || async {
            let (to, from) = tokio::sync::mpsc::unbounded_channel::<Bytes>();
            for _ in 0..3 {
                to.send(Bytes::from_static(b"data: 1\n\n")).unwrap();
            }
            let body = Body::new(Frames { from, _open: to });
            Response::builder().header(CONTENT_TYPE, "text/event-stream").body(body).unwrap()
        };
        // More than is collected; less, but more as base64; less, but more with its quotes escaped.
        let large = || async { vec![b'a'; BODY_BYTES_MAX + 1] };
        let binary = || async { vec![b'a'; 4_900_000] };
        let quotes = || async { "\"".repeat(3_200_000) };
        let router = Router::new().route("/stream", any(endless)).route("/large", any(large));
        let router = router.route("/binary", any(binary)).route("/quotes", any(quotes));
        let router = router.route("/fits", any(|| async { vec![b'a'; 4_600_000] }));
        let event = Bytes::from(get("/stream").to_string());
        let time = STREAM_RESERVE + Duration::from_millis(100);
        let told: Value = serde_json::from_slice(&answer(&router, &event, time).await.unwrap()).unwrap();
        let body = told["body"].as_str().unwrap();
        assert_eq!((told["statusCode"].as_u64(), body.matches("data: 1").count()), (Some(200), 3));
        for path in ["/large", "/binary", "/quotes"] {
            let told = asked(router.clone(), get(path)).await;
            assert_eq!(told["statusCode"], 500, "{path}");
            assert!(told["body"].as_str().unwrap().contains("ANSWER_TOO_LARGE"), "{path}");
        }
        assert_eq!(asked(router, get("/fits")).await["statusCode"], 200);
    }

    #[tokio::test]
    async fn what_is_no_request_is_refused() {
        for bad in ["{}", "[]", r#"{"rawPath":"/"}"#] {
            let told = answer(&Router::new(), &Bytes::from(bad), TIME).await;
            assert_eq!(told.unwrap_err().kind, "BadEvent");
        }
    }

    /// A body that never ends.
    struct Frames {
        from: tokio::sync::mpsc::UnboundedReceiver<Bytes>,
        _open: tokio::sync::mpsc::UnboundedSender<Bytes>,
    }

    impl axum::body::HttpBody for Frames {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: std::pin::Pin<&mut Self>,
            context: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<hyper::body::Frame<Bytes>, Self::Error>>> {
            self.from.poll_recv(context).map(|data| data.map(|data| Ok(hyper::body::Frame::data(data))))
        }
    }
}
