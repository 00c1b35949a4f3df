//! From addresses to pages: every visit passes the door, then a page is made, then the answer is closed to others.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, RawPathParams, Request};
use axum::http::header::{self, CONTENT_SECURITY_POLICY, HeaderValue, LOCATION, SET_COOKIE};
use axum::http::request::Parts;
use axum::http::{HeaderName, Method, Response, StatusCode};
use axum::routing::any;
use maud::Markup;
use tidemill_engine::backend::Backend;
use tidemill_engine::clock::{Clock, SystemClock};

use super::door::{self, Viewer};
use super::form::{Pairs, decode, encode, query};
use super::inside::Inside;
use super::pace::Pace;
use super::pages::{self, Act, Page, Show};
use super::pulse::Pulses;
use super::session::{AGE_MAX, Sessions, random_word};
use super::visit::{Outcome, Sight, Visit};
use super::{asset, cookie, layout, live};
use crate::admission::caller::Caller;
use crate::app::App;
use crate::connection::{Connection, Peer};
use crate::problem::Problem;
use crate::request::asked::answered;
use crate::request::body;
use crate::request::body_budget::Holder;
use crate::route::{Access, READ, raw};

/// The bytes of a form. A script's source is the largest thing in one, and grows when it is encoded.
const FORM_BYTES_MAX: usize = 2 * 1024 * 1024;
/// The bytes of a login: a key, and an address of ours. Anybody may send it.
const LOGIN_BYTES_MAX: usize = 4 * 1024;
const NOTE_SECONDS: u64 = 60;
/// The characters of a note; it travels in a cookie.
const NOTE_CHARS_MAX: usize = 300;

/// What all visits share.
pub(super) struct Dashboard {
    pub(super) app: App,
    pub(super) api: Router,
    pub(super) sessions: Sessions,
    pub(super) pulses: Pulses,
    pub(super) pace: Pace,
    pub(super) clock: SystemClock,
    /// The token of forms where nobody logs in.
    pub(super) token: String,
}

type Answered = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// The API with the dashboard beside it. `api` is what pages ask.
/// What the log calls the route of a page.
const PAGE: &str = "dashboard";

pub(crate) fn mount(app: App, api: Router) -> Router {
    let dashboard = Arc::new(Dashboard {
        api: api.clone(),
        sessions: Sessions::default(),
        pulses: Pulses::default(),
        pace: Pace::default(),
        clock: SystemClock::start(),
        // Without random bytes there is no token to give, and forms are refused.
        token: random_word().unwrap_or_default(),
        app,
    });
    let mut router = api;
    let mut add = |path: &str, handle: Arc<dyn Fn(Request) -> Answered + Send + Sync>| {
        let sofar = std::mem::take(&mut router);
        router = sofar.route(
            path,
            any(move |request: Request| answered(request.method().clone(), PAGE, handle(request))),
        );
    };
    for Page { path, show, acts, is_live, is_large } in pages::all() {
        let show = if is_large { apart(show) } else { show };
        let (own, shown) = (Arc::clone(&dashboard), Arc::clone(&show));
        let post = acts.iter().find(|(at, _)| *at == path).map(|(_, act)| Arc::clone(act));
        add(
            path,
            Arc::new(move |request| {
                Box::pin(answer(Arc::clone(&own), Some(Arc::clone(&shown)), post.clone(), request))
            }),
        );
        if is_live {
            let (own, show) = (Arc::clone(&dashboard), Arc::clone(&show));
            add(
                &format!("/live{path}"),
                Arc::new(move |request| Box::pin(stream(Arc::clone(&own), Arc::clone(&show), request))),
            );
        }
        for (at, act) in acts.into_iter().filter(|(at, _)| *at != path) {
            let own = Arc::clone(&dashboard);
            add(
                at,
                Arc::new(move |request| {
                    Box::pin(answer(Arc::clone(&own), None, Some(Arc::clone(&act)), request))
                }),
            );
        }
    }
    let own = Arc::clone(&dashboard);
    add("/login", Arc::new(move |request| Box::pin(login(Arc::clone(&own), request))));
    let own = Arc::clone(&dashboard);
    add("/logout", Arc::new(move |request| Box::pin(logout(Arc::clone(&own), request))));
    add("/assets/{name}", Arc::new(move |request| Box::pin(give_asset(Arc::clone(&dashboard), request))));
    router
}

/// Makes a page on a thread of its own when it is its turn: what takes long there keeps nobody else waiting.
fn apart(show: Show) -> Show {
    Arc::new(move |visit| {
        let show = Arc::clone(&show);
        Box::pin(async move {
            let right = visit.dashboard.pace.large(visit.viewer.caller.name()).await;
            let runtime = tokio::runtime::Handle::current();
            let made = tokio::task::spawn_blocking(move || {
                let made = runtime.block_on(show(visit));
                drop(right);
                made
            });
            made.await.unwrap_or_else(|error| Err(Problem::internal(&error)))
        })
    })
}

/// A page, or what a form does.
async fn answer(
    dashboard: Arc<Dashboard>,
    show: Option<Show>,
    act: Option<Act>,
    request: Request,
) -> Response<Body> {
    let (mut parts, body) = request.into_parts();
    let viewer = match door::admit(&dashboard, &parts).await {
        Ok(Some(viewer)) => viewer,
        Ok(None) => return closed(to_login(&parts)),
        Err(problem) => return closed(problem.answer(|text| dashboard.app.engine().clean(text))),
    };
    let reply = match (&parts.method, show, act) {
        (&Method::GET | &Method::HEAD, Some(show), _) => see(&dashboard, &viewer, &mut parts, show).await,
        (&Method::POST, _, Some(act)) => do_it(&dashboard, &viewer, &mut parts, body, act).await,
        _ => Err(Problem::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "METHOD_NOT_ALLOWED",
            "this address cannot be asked so",
        )),
    };
    closed(reply.unwrap_or_else(|problem| {
        problem.log();
        let text = dashboard.app.engine().clean(&problem.detail);
        html(problem.status, &layout::problem(&viewer, problem.status, &problem.code, &text))
    }))
}

async fn visit(dashboard: &Arc<Dashboard>, viewer: &Viewer, parts: &mut Parts) -> Result<Visit, Problem> {
    if let Access::Roles(roles) = READ
        && !viewer.caller.has_any(roles)
    {
        return Err(Problem::forbidden(
            "FORBIDDEN",
            "the dashboard needs a key with the role reader, producer or admin",
        ));
    }
    let named = match RawPathParams::from_request_parts(parts, &()).await {
        Ok(params) => params.iter().map(|(name, text)| (name.to_owned(), text.to_owned())).collect(),
        Err(_) => return Err(Problem::no_such_route()),
    };
    // What was opened in a session ends with it.
    let stay = viewer.session.as_ref().map(|session| session.open.clone());
    let peer = parts.extensions.get::<Peer>().cloned().unwrap_or_default().staying(stay);
    Ok(Visit {
        dashboard: Arc::clone(dashboard),
        viewer: viewer.clone(),
        api: Inside { api: dashboard.api.clone(), caller: viewer.caller.clone(), peer },
        parts: named,
        query: Pairs::read(parts.uri.query().unwrap_or_default()),
        now: dashboard.clock.now().millis(),
    })
}

async fn see(
    dashboard: &Arc<Dashboard>,
    viewer: &Viewer,
    parts: &mut Parts,
    show: Show,
) -> Result<Response<Body>, Problem> {
    let visit = visit(dashboard, viewer, parts).await?;
    // Before the page is made: what happens meanwhile is sent again, which does no harm.
    let seen = dashboard.app.engine().backend().newest();
    let screen = match show(visit.clone()).await? {
        Sight::Screen(screen) => screen,
        Sight::Raw(response) => return Ok(response),
    };
    let note = cookie::read(&parts.headers, cookie::NOTE).and_then(decode);
    let address = parts.uri.path_and_query().map_or("/", |address| address.as_str());
    let page = layout::page(&visit, &screen, note.as_deref(), address, seen);
    let mut response = html(StatusCode::OK, &page);
    if note.is_some() {
        response
            .headers_mut()
            .extend(cookie::write(cookie::NOTE, "", 0, false).map(|value| (SET_COOKIE, value)));
    }
    Ok(response)
}

async fn do_it(
    dashboard: &Arc<Dashboard>,
    viewer: &Viewer,
    parts: &mut Parts,
    body: Body,
    act: Act,
) -> Result<Response<Body>, Problem> {
    door::check_origin(parts)?;
    let visit = visit(dashboard, viewer, parts).await?;
    let form = read_form(dashboard, Holder::of(&viewer.caller), body, FORM_BYTES_MAX).await?;
    door::check_token(viewer, &form)?;
    match act(visit.clone(), form).await? {
        Outcome::Go { to, note } => {
            let mut response = see_other(&to);
            let note: String = note.chars().take(NOTE_CHARS_MAX).collect();
            let set = cookie::write(cookie::NOTE, &encode(&note), NOTE_SECONDS, false);
            response.headers_mut().extend(set.map(|value| (SET_COOKIE, value)));
            Ok(response)
        }
        Outcome::Show { screen, is_problem } => {
            let status = if is_problem { StatusCode::BAD_REQUEST } else { StatusCode::OK };
            let address = parts.uri.path();
            Ok(html(status, &layout::page(&visit, &screen, None, address, 0)))
        }
    }
}

async fn read_form(
    dashboard: &Dashboard,
    holder: Option<Holder>,
    body: Body,
    bytes_max: usize,
) -> Result<Pairs, Problem> {
    let app = &dashboard.app;
    let account = app.bodies().account(holder);
    let read = body::read(body, bytes_max, app.config().body_timeout, &account).await?;
    let text = std::str::from_utf8(&read.bytes)
        .map_err(|_| Problem::new(StatusCode::BAD_REQUEST, "BROKEN_BODY", "the form is not UTF-8"))?;
    Ok(Pairs::read(text))
}

/// What changes on a page, as it changes.
async fn stream(dashboard: Arc<Dashboard>, show: Show, request: Request) -> Response<Body> {
    let (mut parts, _) = request.into_parts();
    let clean = |problem: &Problem| problem.answer(|text| dashboard.app.engine().clean(text));
    let viewer = match door::admit(&dashboard, &parts).await {
        Ok(Some(viewer)) => viewer,
        Ok(None) => return closed(clean(&Problem::unauthenticated("log in first"))),
        Err(problem) => return closed(clean(&problem)),
    };
    let opened = match visit(&dashboard, &viewer, &mut parts).await {
        Ok(visit) => live::open(visit, show, &parts).await,
        Err(problem) => Err(problem),
    };
    closed(opened.unwrap_or_else(|problem| clean(&problem)))
}

async fn login(dashboard: Arc<Dashboard>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    if let Err(problem) = door::check_open(&dashboard, &parts).await {
        return closed(problem.answer(|text| dashboard.app.engine().clean(text)));
    }
    let given = Pairs::read(parts.uri.query().unwrap_or_default());
    if parts.method != Method::POST {
        return closed(match door::admit(&dashboard, &parts).await {
            Ok(Some(_)) => see_other(own_address(given.text("next"))),
            _ => html(StatusCode::OK, &layout::login(None, given.text("next"))),
        });
    }
    let tried = try_login(&dashboard, &parts, body).await;
    closed(match tried {
        Ok((word, next)) => {
            let mut response = see_other(own_address(next.as_deref()));
            // Behind a proxy that speaks TLS the browser must send it over TLS only.
            let is_secure = parts
                .headers
                .get(header::ORIGIN)
                .is_some_and(|origin| origin.as_bytes().starts_with(b"https:"));
            let set = cookie::write(cookie::SESSION, &word, AGE_MAX.as_secs(), is_secure);
            response.headers_mut().extend(set.map(|value| (SET_COOKIE, value)));
            response
        }
        // Nobody typed a form that is too large or too slow, or that there is no room for.
        Err((problem, _)) if matches!(problem.status.as_u16(), 408 | 413 | 503) => {
            problem.answer(|text| dashboard.app.engine().clean(text))
        }
        Err((problem, next)) => {
            problem.log();
            html(problem.status, &layout::login(Some(&problem.detail), next.as_deref()))
        }
    })
}

async fn try_login(
    dashboard: &Dashboard,
    parts: &Parts,
    body: Body,
) -> Result<(String, Option<String>), (Problem, Option<String>)> {
    // There is no session whose token the form could hold; its origin tells whether it is ours.
    door::check_origin(parts).map_err(|problem| (problem, None))?;
    let holder = Some(Holder::at(address_of(parts)));
    let form =
        read_form(dashboard, holder, body, LOGIN_BYTES_MAX).await.map_err(|problem| (problem, None))?;
    let next = form.text("next").map(ToOwned::to_owned);
    let key = form.text("key").unwrap_or_default().trim();
    let refuse = |problem: Problem| (problem, next.clone());
    let found = dashboard.app.engine().authenticate(key).await.map_err(|error| refuse(error.into()))?;
    let Some(key) = found else {
        return Err(refuse(failed_login(dashboard, parts).await));
    };
    let caller = Caller::key(key.id.as_str(), key.role, &key.tenants);
    if let Access::Roles(roles) = READ
        && !caller.has_any(roles)
    {
        let detail =
            "This is a worker's key. The dashboard needs a key with the role reader, producer or admin.";
        return Err(refuse(Problem::forbidden("FORBIDDEN", detail)));
    }
    let word = dashboard.sessions.begin(caller, Instant::now()).map_err(refuse)?;
    // The browser forgets the word of a former session, and nobody could end it any more.
    if let Some(former) = cookie::read(&parts.headers, cookie::SESSION) {
        dashboard.sessions.end(former);
    }
    Ok((word, form.text("next").map(ToOwned::to_owned)))
}

fn address_of(parts: &Parts) -> Option<IpAddr> {
    parts.extensions.get::<Connection>().and_then(|connection| connection.other_end.address())
}

/// What a key that is none is answered, after a while.
async fn failed_login(dashboard: &Dashboard, parts: &Parts) -> Problem {
    let guard = dashboard.app.logins();
    let address = address_of(parts);
    let verdict = guard.note(address, Instant::now());
    if let Some(count) = verdict.told {
        let from = address.map_or_else(|| "here".to_owned(), |address| address.to_string());
        tracing::warn!("{count} logins failed since this was last told; the newest came from {from}");
    }
    let Some(_place) = guard.place() else {
        let detail = "Too many logins fail at the moment. Try again in a few seconds.";
        return Problem::too_many("TOO_MANY_LOGINS", detail, 5);
    };
    tokio::time::sleep(verdict.wait).await;
    Problem::unauthenticated("This key is unknown or was revoked.")
}

async fn logout(dashboard: Arc<Dashboard>, request: Request) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let done = async {
        let Some(viewer) = door::admit(&dashboard, &parts).await? else { return Ok(()) };
        if parts.method != Method::POST {
            return Err(Problem::new(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", "send the form"));
        }
        door::check_origin(&parts)?;
        let holder = Holder::of(&viewer.caller);
        door::check_token(&viewer, &read_form(&dashboard, holder, body, LOGIN_BYTES_MAX).await?)?;
        if let Some(word) = cookie::read(&parts.headers, cookie::SESSION) {
            dashboard.sessions.end(word);
        }
        Ok(())
    };
    closed(match done.await {
        Ok(()) => {
            let mut response = see_other("/login");
            let set = cookie::write(cookie::SESSION, "", 0, false);
            response.headers_mut().extend(set.map(|value| (SET_COOKIE, value)));
            response
        }
        Err(problem) => problem.answer(|text| dashboard.app.engine().clean(text)),
    })
}

async fn give_asset(dashboard: Arc<Dashboard>, request: Request) -> Response<Body> {
    let (parts, _) = request.into_parts();
    let found = match door::check_open(&dashboard, &parts).await {
        Ok(()) => asset::find(parts.uri.path().trim_start_matches("/assets/")),
        Err(problem) => Err(problem),
    };
    closed(found.unwrap_or_else(|problem| problem.answer(|text| dashboard.app.engine().clean(text))))
}

fn to_login(parts: &Parts) -> Response<Body> {
    let address = parts.uri.path_and_query().map(axum::http::uri::PathAndQuery::as_str);
    // A form that was sent too late cannot be sent again by going there.
    let next = address.filter(|next| *next != "/" && parts.method == Method::GET);
    see_other(&format!("/login{}", query(&[("next", next)])))
}

/// An address of ours, whatever was asked for: a login must not lead to other sites.
fn own_address(next: Option<&str>) -> &str {
    let is_own = |next: &&str| {
        next.starts_with('/')
            && !next.starts_with("//")
            && next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\')
    };
    next.filter(is_own).unwrap_or("/")
}

fn see_other(to: &str) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SEE_OTHER;
    let to = HeaderValue::from_str(to).unwrap_or(HeaderValue::from_static("/"));
    response.headers_mut().insert(LOCATION, to);
    response
}

fn html(status: StatusCode, page: &Markup) -> Response<Body> {
    raw(status, "text/html; charset=utf-8", page.0.clone())
}

const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
                      connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// What every answer says to browsers.
fn closed(mut response: Response<Body>) -> Response<Body> {
    let headers = response.headers_mut();
    for (name, value) in [
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, POLICY),
        // Not `no-referrer`: browsers would send forms without their origin.
        (HeaderName::from_static("referrer-policy"), "same-origin"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    // What is handed through was closed as an answer of the API, which is stricter.
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_leads_to_our_own_pages_only() {
        for (next, expected) in [
            (Some("/jobs?status=failed"), "/jobs?status=failed"),
            (Some("//evil.example"), "/"),
            (Some("https://evil.example"), "/"),
            (Some("/\\evil.example"), "/"),
            (Some("/a\r\nSet-Cookie: x"), "/"),
            (Some(""), "/"),
            (None, "/"),
        ] {
            assert_eq!(own_address(next), expected, "{next:?}");
        }
    }
}
