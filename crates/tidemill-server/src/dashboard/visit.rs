//! One visit to a page: the viewer, the page, and the way to what is shown.

use std::sync::Arc;

use axum::body::Body;
use axum::http::Response;
use tidemill_engine::clock::Clock;
use tidemill_model::TenantId;

use super::door::Viewer;
use super::form::Pairs;
use super::inside::Inside;
use super::mount::Dashboard;
use super::screen::Screen;
use crate::api::Role;
use crate::app::Engine;
use crate::problem::Problem;
use crate::route::{ADMIN, Access, SUBMIT};

pub(super) struct Visit {
    pub(super) dashboard: Arc<Dashboard>,
    pub(super) viewer: Viewer,
    pub(super) api: Inside,
    /// The named parts of the path.
    pub(super) parts: Arc<[(String, String)]>,
    pub(super) query: Pairs,
    /// Epoch milliseconds.
    pub(super) now: u64,
}

impl Clone for Visit {
    fn clone(&self) -> Self {
        Self {
            dashboard: Arc::clone(&self.dashboard),
            viewer: self.viewer.clone(),
            api: self.api.clone(),
            parts: Arc::clone(&self.parts),
            query: self.query.clone(),
            now: self.now,
        }
    }
}

/// What follows a form.
pub(super) enum Outcome {
    /// It is done: go there and tell this.
    Go { to: String, note: String },
    /// A page, such as the form once more with what is wrong.
    Show { screen: Box<Screen>, is_problem: bool },
}

impl Outcome {
    pub(super) fn go(to: impl Into<String>, note: impl Into<String>) -> Self {
        Self::Go { to: to.into(), note: note.into() }
    }
}

/// What a page may give beside a screen.
pub(super) enum Sight {
    Screen(Screen),
    /// Handed through as it is: a file, a log.
    Raw(Response<Body>),
}

impl From<Screen> for Sight {
    fn from(screen: Screen) -> Self {
        Self::Screen(screen)
    }
}

impl Visit {
    pub(super) fn engine(&self) -> &Engine {
        self.dashboard.app.engine()
    }

    pub(super) fn tenant(&self) -> Result<TenantId, Problem> {
        let tenant = self.viewer.caller.tenant().cloned();
        tenant.ok_or_else(|| Problem::forbidden("FORBIDDEN", "the key has no tenant"))
    }

    /// A part of the path.
    pub(super) fn part(&self, name: &str) -> &str {
        self.parts.iter().find(|(own, _)| own == name).map_or("", |(_, text)| text)
    }

    /// Takes the time again, for a page that is rendered again.
    pub(super) fn renew(&mut self) {
        self.now = self.dashboard.clock.now().millis();
    }

    fn may(&self, access: Access) -> bool {
        match access {
            Access::Everyone => true,
            Access::Roles(roles) => self.viewer.caller.has_any(roles),
        }
    }

    /// Whether the viewer may submit, cancel and resume. Only what is shown depends on it; routes check for themselves.
    pub(super) fn may_submit(&self) -> bool {
        self.may(SUBMIT)
    }

    pub(super) fn is_admin(&self) -> bool {
        self.may(ADMIN)
    }

    pub(super) fn role(&self) -> &'static str {
        [Role::Admin, Role::Producer, Role::Reader]
            .into_iter()
            .find(|role| self.viewer.caller.has_any(&[*role]))
            .map_or("worker", Role::as_str)
    }
}
