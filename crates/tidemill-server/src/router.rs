//! From routes to answers: every request passes the same gates in the same order.
//!
//! Method, caller, role, rate, parameters, content type, body. Only then a handler runs.

use std::any::Any;
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, RawPathParams, Request};
use axum::http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use axum::routing::any;
use tower::ServiceExt as _;

use crate::admission::caller::Caller;
use crate::admission::keyless;
use crate::app::App;
use crate::connection::{Connection, Peer};
use crate::gateway::{GatewayNames, door};
use crate::problem::Problem;
use crate::request::asked::answered;
use crate::request::body;
use crate::request::body::ReadBody;
use crate::request::body_budget::{Account, Holder, LARGE_BODY_BYTES};
use crate::request::given_job::GivenJob;
use crate::request::json_body;
use crate::request::param::Inputs;
use crate::route::{Access, BodyKind, Call, Reply, Route};
use crate::server_address::ServerAddress;
use crate::{dashboard, routes};

/// What the log calls the route of a path that there is not.
const NOWHERE: &str = "-";
/// What it calls the route of clients of AWS.
const GATEWAY: &str = "aws-gateway";

/// The API and the dashboard as a service. Each request is handled as that of its `Caller`, if its extensions hold one;
/// otherwise it must come over a connection, with a key or as the local user.
pub fn router(app: App) -> Router {
    let mut paths: BTreeMap<&'static str, Vec<Route>> = BTreeMap::new();
    for route in routes::table() {
        paths.entry(route.path).or_default().push(route);
    }
    let mut router = Router::new();
    let known: Arc<[&'static str]> = paths.keys().copied().collect();
    for (path, own) in paths {
        let (own, app) = (Arc::new(own), app.clone());
        let handle = move |request: Request| {
            let method = request.method().clone();
            answered(method, path, answer(app.clone(), Arc::clone(&own), request))
        };
        router = router.route(path, any(handle));
    }
    let gateway = app.config().gateway.clone().map(|names| (app.clone(), names));
    let router = dashboard::mount(app.clone(), router).fallback(move |request: Request| {
        let (app, known) = (app.clone(), Arc::clone(&known));
        answered(request.method().clone(), NOWHERE, async move {
            let (parts, body) = request.into_parts();
            let missed = || missed(&known, parts.uri.path());
            let problem = pass_door(&app, &parts).await.err().unwrap_or_else(missed);
            body::discard(body).await;
            secured(problem.answer(|text| app.engine().clean(text)))
        })
    });
    match gateway {
        Some((app, names)) => with_gateway(router, app, names),
        None => router,
    }
}

/// Requests of clients of AWS are told apart before anything is looked up.
fn with_gateway(router: Router, app: App, names: GatewayNames) -> Router {
    Router::new().fallback(move |request: Request| {
        let (router, app, names) = (router.clone(), app.clone(), names.clone());
        async move {
            let (parts, body) = request.into_parts();
            let is_aws = door::is_aws(&parts);
            let request = Request::from_parts(parts, body);
            if is_aws {
                let method = request.method().clone();
                return answered(method, GATEWAY, door::answer(app, names, request)).await;
            }
            let Ok(response) = router.oneshot(request).await;
            response
        }
    })
}

/// Why no route has a path: it may be one whose id was left empty, as by a variable of a script that is not set.
fn missed(known: &[&'static str], path: &str) -> Problem {
    let empty = known.iter().find_map(|route| empty_part(route, path));
    empty.map_or_else(Problem::no_such_route, |name| Problem::invalid_parameter(name, "is empty"))
}

/// The first part of a route that a path leaves empty, if it is that of the route otherwise.
fn empty_part(route: &'static str, path: &str) -> Option<&'static str> {
    let mut given = path.split('/');
    let mut empty = None;
    for part in route.split('/') {
        let text = given.next()?;
        match part.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')) {
            None if part != text => return None,
            Some(name) if text.is_empty() => empty = empty.or(Some(name.trim_start_matches('*'))),
            // The rest of the path may have any number of parts.
            Some(name) if name.starts_with('*') => return empty,
            _ => {}
        }
    }
    empty.filter(|_| given.next().is_none())
}

async fn answer(app: App, routes: Arc<Vec<Route>>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let mut body = Some(body);
    let asked = if parts.method == Method::HEAD { Method::GET } else { parts.method.clone() };
    let found = routes.iter().find(|route| route.method == asked);
    let reply = match found {
        Some(route) => CatchPanic(Box::pin(pass(app.clone(), route, parts, &mut body))).await,
        None => match pass_door(&app, &parts).await {
            Ok(()) => Err(wrong_method(&routes)),
            Err(problem) => Err(problem),
        },
    };
    if let Some(unread) = body {
        body::discard(unread).await;
    }
    let response = reply.unwrap_or_else(|problem| problem.answer(|text| app.engine().clean(text)));
    debug_assert!(
        found.is_none_or(|route| route.is_documented(response.status())),
        "{:?} answered {}, which its document does not say",
        found.map(|route| route.name),
        response.status(),
    );
    secured(response)
}

/// Requests to nowhere pass the door as well, so that nothing can be learned from a foreign page.
async fn pass_door(app: &App, parts: &Parts) -> Result<(), Problem> {
    let is_inside = parts.extensions.get::<Caller>().is_some();
    if is_inside || app.engine().has_keys().await? { Ok(()) } else { check_local(parts) }
}

fn wrong_method(routes: &[Route]) -> Problem {
    let mut allowed: Vec<&str> = routes.iter().map(|route| route.method.as_str()).collect();
    if allowed.contains(&"GET") {
        allowed.push("HEAD");
    }
    let allow = allowed.join(", ");
    let detail = format!("allowed here: {allow}");
    Problem {
        allow: Some(allow.into()),
        ..Problem::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", detail)
    }
}

/// All gates, then the handler.
async fn pass(app: App, route: &Route, mut parts: Parts, body: &mut Option<Body>) -> Reply {
    let caller = admit(&app, route.access, &parts).await?;
    if let Some(tenant) = caller.limited_tenant() {
        tracing::Span::current().record("tenant", tenant.as_str());
    }
    if let Access::Roles(roles) = route.access {
        if !caller.has_any(roles) {
            let names: Vec<_> = roles.iter().map(|role| role.as_str()).collect();
            let detail = format!("this needs a key with the role {}", names.join(" or "));
            return Err(Problem::forbidden("FORBIDDEN", detail));
        }
        if !caller.is_operator() || parts.extensions.get::<Connection>().is_some() {
            app.rates().take(caller.name(), Instant::now()).map_err(|wait| {
                Problem::too_many("RATE_LIMITED", "too many requests with this key", wait.as_secs() + 1)
            })?;
            if let Some(tenant) = caller.limited_tenant() {
                app.tenant_rates().take(tenant.as_str(), Instant::now()).map_err(|wait| {
                    let detail = "too many requests with the keys of this tenant";
                    Problem::too_many("TENANT_RATE_LIMITED", detail, wait.as_secs() + 1)
                })?;
            }
        }
    }
    let path = path_of(&mut parts).await?;
    let header = |name: &str| header_of(&parts.headers, name);
    let inputs = Inputs::read(&route.params, &path, parts.uri.query(), header)?;
    let account = app.bodies().account(Holder::of(&caller));
    let read = read_body(&app, route, &parts, body, &account).await?;
    let peer = parts.extensions.get::<Peer>().cloned().unwrap_or_default();
    let (body, bytes) = (read.bytes.clone(), read.bytes.len());
    let address = ServerAddress::of(&parts.headers);
    let given = parts.extensions.remove::<GivenJob>();
    let done = (route.handler)(Call { app: app.clone(), caller, inputs, body, given, read, peer, address });
    if bytes > LARGE_BODY_BYTES { app.bodies().apart(&account, bytes, done).await } else { done.await }
}

/// The caller. Without a key there are three ways to be known: in process, on an open route, or as the local user.
async fn admit(app: &App, access: Access, parts: &Parts) -> Result<Caller, Problem> {
    if let Some(caller) = parts.extensions.get::<Caller>() {
        return Ok(caller.clone());
    }
    let local = || Caller::local(app.config().tenant.clone());
    // Probes are answered while the store is busy: a caller that may ask without keys may also ask with them.
    if access == Access::Everyone && !app.engine().is_keyed() && check_local(parts).is_ok() {
        return Ok(local());
    }
    let has_keys = match app.engine().has_keys().await {
        // Probes must answer when the store cannot, and report it themselves.
        Err(_) if access == Access::Everyone => return Ok(local()),
        has_keys => has_keys?,
    };
    if !has_keys {
        check_local(parts)?;
        return Ok(Caller::keyless(app.config().tenant.clone()));
    }
    if access == Access::Everyone {
        return Ok(local());
    }
    let mut given = parts.headers.get_all(AUTHORIZATION).iter();
    let (Some(value), None) = (given.next(), given.next()) else {
        check_closed(app).await?;
        return Err(Problem::unauthenticated("send `Authorization: Bearer` with an API key"));
    };
    let token = value.to_str().ok().and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    let Some(token) = token else {
        return Err(Problem::unauthenticated("the Authorization header must be `Bearer` and an API key"));
    };
    if let Some(key) = app.engine().authenticate(token).await? {
        return Ok(Caller::key(key.id.as_str(), key.role, &key.tenants));
    }
    check_closed(app).await?;
    Err(Problem::unauthenticated("the API key is unknown or was revoked"))
}

/// Why nobody comes in, and what helps.
pub(crate) const STORE_CLOSED: &str = "this store was imported without the API keys it had and stays closed until it has one: \
     stop the server and run `tidemill keys create --role admin --data DIR`";

/// Nobody has a key of a store that came without the keys it had.
pub(crate) async fn check_closed(app: &App) -> Result<(), Problem> {
    if !app.engine().is_closed().await? {
        return Ok(());
    }
    Err(Problem::forbidden("STORE_CLOSED", STORE_CLOSED))
}

pub(crate) fn check_local(parts: &Parts) -> Result<(), Problem> {
    let Some(connection) = parts.extensions.get::<Connection>() else {
        return Err(Problem::unauthenticated("a request without a connection needs a caller"));
    };
    keyless::check(connection, &parts.method, &parts.uri, &parts.headers)
}

async fn path_of(parts: &mut Parts) -> Result<Vec<(String, String)>, Problem> {
    match RawPathParams::from_request_parts(parts, &()).await {
        Ok(params) => match params.iter().find(|(_, text)| text.is_empty()) {
            Some((name, _)) => Err(Problem::invalid_parameter(name, "is empty")),
            None => Ok(params.iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect()),
        },
        // Not UTF-8: no id is like that.
        Err(_) => Err(Problem::no_such_route()),
    }
}

/// A header's text: `None` when it is absent, an error when it is no text or there are several.
fn header_of(headers: &HeaderMap, name: &str) -> Option<Result<String, ()>> {
    let mut given = headers.get_all(name).iter();
    let first = given.next()?;
    if given.next().is_some() {
        return Some(Err(()));
    }
    Some(first.to_str().map(str::to_owned).map_err(|_| ()))
}

async fn read_body(
    app: &App,
    route: &Route,
    parts: &Parts,
    unread: &mut Option<Body>,
    account: &Account,
) -> Result<ReadBody, Problem> {
    let config = app.config();
    let json_max = config.body_bytes_max.min(route.body_bytes_max);
    let mut given = || unread.take().unwrap_or_default();
    match route.body {
        BodyKind::Nothing if route.method != Method::POST => Ok(ReadBody::default()),
        BodyKind::Nothing => {
            check_simple_request(route, parts)?;
            let read = body::read(given(), json_max, config.body_timeout, account).await?;
            if !read.bytes.is_empty() && !is_json(&parts.headers) {
                return Err(not_json());
            }
            json_body::nothing(&read.bytes)?;
            Ok(read)
        }
        BodyKind::Bytes => body::read(given(), config.blob_bytes_max, config.body_timeout, account).await,
        BodyKind::Json { optional, .. } => {
            let is_json = is_json(&parts.headers);
            if !is_json && !optional {
                return Err(not_json());
            }
            check_simple_request(route, parts)?;
            let read = body::read(given(), json_max, config.body_timeout, account).await?;
            if !is_json && !read.bytes.is_empty() {
                return Err(not_json());
            }
            Ok(read)
        }
    }
}

/// A page of any site may send a POST that looks like a form. Without keys nothing else tells it from the local user's
/// own, so changes must say that they are JSON even when there is nothing to say.
fn check_simple_request(route: &Route, parts: &Parts) -> Result<(), Problem> {
    let by_key = parts.headers.contains_key(AUTHORIZATION) || parts.extensions.get::<Caller>().is_some();
    if by_key || route.method != Method::POST || is_json(&parts.headers) { Ok(()) } else { Err(not_json()) }
}

fn not_json() -> Problem {
    Problem::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "UNSUPPORTED_MEDIA_TYPE",
        "send the body with `Content-Type: application/json`",
    )
}

fn is_json(headers: &HeaderMap) -> bool {
    let mut given = headers.get_all(CONTENT_TYPE).iter();
    let (Some(value), None) = (given.next(), given.next()) else { return false };
    let media = value.to_str().unwrap_or_default();
    let (media, parameters) = media.split_once(';').unwrap_or((media, ""));
    let is_utf8 = parameters.split(';').map(str::trim).all(|parameter| {
        parameter.is_empty()
            || parameter.split_once('=').is_some_and(|(name, value)| {
                !name.trim().eq_ignore_ascii_case("charset")
                    || value.trim().trim_matches('"').eq_ignore_ascii_case("utf-8")
            })
    });
    media.trim().eq_ignore_ascii_case("application/json") && is_utf8
}

/// What every answer says to browsers, unless a handler said something of its own.
pub(crate) fn secured(mut response: Response<Body>) -> Response<Body> {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (HeaderName::from_static("referrer-policy"), "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    response
}

/// What a panic said.
pub(crate) fn panicked(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    format!("it panicked: {}", text.as_deref().unwrap_or("without a word"))
}

/// A handler whose panic becomes an answer: the mistake is ours, and the connection need not suffer.
struct CatchPanic<F>(Pin<Box<F>>);

impl<F: Future<Output = Reply>> Future for CatchPanic<F> {
    type Output = Reply;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Reply> {
        let future = &mut self.0;
        std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx)))
            .unwrap_or_else(|panic| Poll::Ready(Err(Problem::internal(&panicked(&*panic)))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_utf8_json_is_json() {
        for (media, expected) in [
            ("application/json", true),
            ("Application/JSON; charset=UTF-8", true),
            ("application/json;charset=\"utf-8\"", true),
            ("application/json; charset=latin1", false),
            ("application/json+x", false),
            ("text/plain", false),
            ("application/x-www-form-urlencoded", false),
            ("", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, media.parse().unwrap());
            assert_eq!(is_json(&headers), expected, "{media:?}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }
}
