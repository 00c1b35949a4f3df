//! What all pages have around them.

use axum::http::StatusCode;
use maud::{DOCTYPE, Markup, html};

use super::asset::ADDRESSES;
use super::door::Viewer;
use super::pages::NAVIGATION;
use super::screen::{Screen, Watch};
use super::visit::Visit;
use super::widgets::token;

/// A mill wheel over a line of water, in the colour of the text around it.
const ICON: &str = "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32'%3E%3Crect width='32' \
                    height='32' rx='7' fill='%230e7490'/%3E%3Cg fill='none' stroke='%23fff' stroke-width='2.6' \
                    stroke-linecap='round'%3E%3Ccircle cx='16' cy='13' r='6.5'/%3E%3Cpath d='M16 6.5v13M9.5 \
                    13h13M4 24q3-3 6 0t6 0 6 0 6 0'/%3E%3C/g%3E%3C/svg%3E";

fn head(title: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width,initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (title) " · Tidemill" }
            link rel="icon" href=(ICON);
            link rel="stylesheet" href=(ADDRESSES.style);
            // Not deferred: the theme must be chosen before anything is drawn.
            script src=(ADDRESSES.script) {}
        }
    }
}

fn brand() -> Markup {
    html! { a class="brand" href="/" { img src=(ICON) alt="" width="22" height="22"; span { "Tidemill" } } }
}

/// A whole page. `address` is where it lives, `seen` the newest event that it may show.
pub(super) fn page(visit: &Visit, screen: &Screen, note: Option<&str>, address: &str, seen: u64) -> Markup {
    let live = (screen.watch != Watch::Nothing).then(|| format!("/live{address}"));
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(&screen.title))
            body data-live=[live] data-seq=(seen) {
                a class="skip" href="#main" { "Skip to content" }
                (side(&visit.viewer, Some(screen.nav), visit.role()))
                main id="main" tabindex="-1" {
                    @if let Some(note) = note { div class="note" role="status" { (note) } }
                    div id="notice" class="notice" role="status" aria-live="polite" hidden {}
                    @for piece in &screen.pieces {
                        div id=(piece.id) class="piece" { (piece.html) }
                    }
                }
            }
        }
    }
}

fn side(viewer: &Viewer, current: Option<&str>, role: &str) -> Markup {
    html! {
        aside class="side" {
            div class="side-top" {
                (brand())
                button type="button" class="theme" data-theme-switch aria-label="Switch between light and dark" title="Light or dark" hidden { "◐" }
            }
            nav aria-label="Pages" {
                ul {
                    @for (id, path, label, glyph) in NAVIGATION {
                        li {
                            a href=(path) aria-current=[(current == Some(*id)).then_some("page")] {
                                span class="glyph" aria-hidden="true" { (glyph) } (label)
                            }
                        }
                    }
                }
            }
            div class="side-foot" {
                span class="live-light" id="live-light" data-on="none" role="status" title="Whether this page updates by itself" {
                    "Live updates need JavaScript"
                }
                div class="who" {
                    @if let Some(tenant) = viewer.caller.tenant() {
                        span title="Tenant" { (tenant.as_str()) }
                    }
                    span class="faint" title="Role" { (role) }
                }
                a href="/docs" { "API docs" }
                @if viewer.session.is_some() {
                    form method="post" action="/logout" class="inline" {
                        (token(viewer))
                        button type="submit" class="link" { "Log out" }
                    }
                }
            }
        }
    }
}

/// A page that says why there is no other.
pub(super) fn problem(viewer: &Viewer, status: StatusCode, code: &str, detail: &str) -> Markup {
    let title = match status {
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::FORBIDDEN => "Not allowed",
        StatusCode::CONFLICT => "That cannot be done now",
        status if status.is_client_error() => "That is not right",
        _ => "Something went wrong",
    };
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(title))
            body {
                (side(viewer, None, ""))
                main id="main" tabindex="-1" {
                    h1 { (title) }
                    div class="empty" {
                        p class="empty-title" { (detail) }
                        p class="faint" { (status.as_u16()) " " code { (code) } }
                        p { a class="button" href="/" { "Overview" } }
                    }
                }
            }
        }
    }
}

pub(super) fn login(problem: Option<&str>, next: Option<&str>) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            (head("Log in"))
            body class="alone" {
                main class="login" {
                    div class="brand" { img src=(ICON) alt="" width="34" height="34"; h1 { "Tidemill" } }
                    form method="post" action="/login" {
                        @if let Some(problem) = problem { p class="problem" role="alert" { (problem) } }
                        label for="key" { "API key" }
                        input id="key" name="key" type="password" autocomplete="current-password" required autofocus spellcheck="false";
                        @if let Some(next) = next { input type="hidden" name="next" value=(next); }
                        button type="submit" class="primary" { "Log in" }
                    }
                    p class="faint" {
                        "No key yet? On the server’s machine run " code { "tidemill keys create --role admin" } "."
                    }
                }
            }
        }
    }
}
