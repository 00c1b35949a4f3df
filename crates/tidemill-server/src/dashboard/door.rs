//! The door: which user looks at a page, and whether a form came from one of ours.

use std::time::Instant;

use axum::http::header::{CONTENT_TYPE, HOST, HeaderName, ORIGIN};
use axum::http::request::Parts;
use tokio::sync::watch;

use super::cookie;
use super::form::Pairs;
use super::mount::Dashboard;
use super::session::same;
use crate::admission::caller::{Caller, Welcome};
use crate::admission::keyless;
use crate::connection::Connection;
use crate::problem::Problem;
use crate::router::check_closed;

/// The field of every form that only our own pages know to fill.
pub(super) const TOKEN_FIELD: &str = "form_token";

/// The user who looks at a page.
#[derive(Debug, Clone)]
pub(super) struct Viewer {
    pub(super) caller: Caller,
    /// What the forms of this viewer must hold.
    pub(super) token: String,
    /// The session, if there is one that could be ended.
    pub(super) session: Option<OpenSession>,
}

/// A session as long as it lasts.
#[derive(Debug, Clone)]
pub(super) struct OpenSession {
    word: String,
    /// Closed once it is over.
    pub(super) open: watch::Receiver<()>,
}

impl OpenSession {
    /// Whether it goes on. Looking counts as use.
    pub(super) fn holds(&self, dashboard: &Dashboard) -> bool {
        dashboard.sessions.find(&self.word, Instant::now()).is_some()
    }
}

impl Viewer {
    /// Whether the viewer's session goes on, if it takes one.
    pub(super) fn is_in(&self, dashboard: &Dashboard) -> bool {
        self.session.as_ref().is_none_or(|session| session.holds(dashboard))
    }
}

/// The viewer, or `None` for a user who must log in first.
pub(super) async fn admit(dashboard: &Dashboard, parts: &Parts) -> Result<Option<Viewer>, Problem> {
    let keyless = |caller| Viewer { caller, token: dashboard.token.clone(), session: None };
    if let Some(caller) = parts.extensions.get::<Caller>() {
        return Ok(Some(keyless(caller.clone())));
    }
    let app = &dashboard.app;
    if !app.engine().has_keys().await? {
        check_local(parts)?;
        return Ok(Some(keyless(Caller::keyless(app.config().tenant.clone()))));
    }
    let Some(word) = cookie::read(&parts.headers, cookie::SESSION) else {
        check_closed(app).await?;
        return Ok(None);
    };
    let Some(session) = dashboard.sessions.find(word, Instant::now()) else { return Ok(None) };
    if !Welcome::of(app, &session.caller).holds().await {
        dashboard.sessions.end(word);
        return Ok(None);
    }
    let open = OpenSession { word: word.to_owned(), open: session.open };
    Ok(Some(Viewer { caller: session.caller, token: session.token, session: Some(open) }))
}

/// Without keys even a page that needs no login is for this machine only.
pub(super) async fn check_open(dashboard: &Dashboard, parts: &Parts) -> Result<(), Problem> {
    if dashboard.app.engine().has_keys().await? { Ok(()) } else { check_local(parts) }
}

fn check_local(parts: &Parts) -> Result<(), Problem> {
    match parts.extensions.get::<Connection>() {
        Some(connection) => keyless::check(connection, &parts.method, &parts.uri, &parts.headers),
        None => Err(Problem::unauthenticated("a request without a connection needs a caller")),
    }
}

/// Whether a form was sent by a page of this server.
pub(super) fn check_origin(parts: &Parts) -> Result<(), Problem> {
    let text = |name: HeaderName| {
        let mut given = parts.headers.get_all(name).iter();
        match (given.next(), given.next()) {
            (Some(value), None) => value.to_str().ok(),
            _ => None,
        }
    };
    let is_form = text(CONTENT_TYPE).is_some_and(|media| {
        let media = media.split(';').next().unwrap_or_default();
        media.trim().eq_ignore_ascii_case("application/x-www-form-urlencoded")
    });
    if !is_form {
        return Err(Problem::forbidden("NOT_A_FORM", "this address takes forms only; programs use /v1"));
    }
    let site = text(HeaderName::from_static("sec-fetch-site"));
    let origin = text(ORIGIN);
    let host =
        origin.and_then(|origin| origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://")));
    let is_own = match (origin, site) {
        (Some(_), _) => host.is_some() && host == text(HOST),
        (None, site) => site == Some("same-origin"),
    };
    if is_own && site.is_none_or(|site| site == "same-origin") {
        return Ok(());
    }
    Err(Problem::forbidden("FOREIGN_ORIGIN", "forms from pages of other origins are refused"))
}

/// Whether the form holds its viewer's token.
pub(super) fn check_token(viewer: &Viewer, form: &Pairs) -> Result<(), Problem> {
    let is_given = form.text(TOKEN_FIELD).is_some_and(|given| same(given, &viewer.token));
    if is_given {
        return Ok(());
    }
    let detail =
        "the form is not one that this server gave you in this session; go back, reload and try again";
    Err(Problem::forbidden("BAD_FORM_TOKEN", detail))
}
