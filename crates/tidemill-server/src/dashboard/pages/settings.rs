//! How the server is set up, and API keys.

use maud::{Markup, html};
use serde_json::json;

use super::super::form::{Pairs, encode, query};
use super::super::screen::Screen;
use super::super::visit::{Outcome, Sight, Visit};
use super::super::widgets::{bytes, card, confirm, id, moment, number, pager, span, state, token};
use super::Page;
use crate::api::{self, KeyCreated, KeyView, Role};
use crate::problem::Problem;

pub(super) fn pages() -> Vec<Page> {
    vec![Page::new("/settings", show).act("/settings/keys", create).act("/settings/keys/{id}/revoke", revoke)]
}

async fn show(visit: Visit) -> Result<Sight, Problem> {
    Ok(screen(&visit, None).await?.into())
}

async fn screen(visit: &Visit, created: Option<&KeyCreated>) -> Result<Screen, Problem> {
    let mut screen = Screen::new("settings", "Settings").still("head", html! { h1 { "Settings" } });
    if let Some(created) = created {
        screen = screen.still("created", created_key(created));
    }
    if visit.is_admin() {
        let asked = query(&[("cursor", visit.query.text("cursor")), ("limit", Some("100"))]);
        let keys: api::Page<KeyView> = visit.api.get(&format!("/v1/keys{asked}")).await?;
        screen = screen.still("keys", key_list(visit, &keys));
    }
    Ok(screen.still("server", server(visit)))
}

fn created_key(created: &KeyCreated) -> Markup {
    html! {
        div class="good-box" role="status" {
            p { strong { "The key was created. This is the only time it is shown:" } }
            p id="new-key" { (id(&created.token, &created.token)) }
        }
    }
}

fn key_list(visit: &Visit, keys: &api::Page<KeyView>) -> Markup {
    let next =
        keys.next_cursor.as_deref().map(|next| format!("/settings{}", query(&[("cursor", Some(next))])));
    let body = html! {
        @if keys.items.is_empty() {
            div class="empty" {
                p class="empty-title" { "There are no keys" }
                p { "The server serves only its own user and root on this machine, who may do everything. The first key ends that at once: let it be an admin’s." }
            }
        } @else {
            div class="wrap" {
                table {
                    thead { tr { th { "Key" } th { "Label" } th { "Role" } th class="less" { "Tenants" } th class="less" { "Created" } th { "State" } th {} } }
                    tbody {
                        @for key in &keys.items {
                            tr {
                                td { (id(&key.id, &key.id)) @if key.id == visit.viewer.caller.name() { span class="faint" { " yours" } } }
                                td { (key.label.as_deref().unwrap_or_default()) }
                                td { (key.role.as_str()) }
                                td class="less" { (key.tenants.join(", ")) }
                                td class="less" { (moment(visit.now, key.created_at)) }
                                td { @match key.revoked_at { Some(at) => { (state("revoked")) " " (moment(visit.now, at)) }, None => (state("enabled")) } }
                                td class="num" {
                                    @if key.revoked_at.is_none() {
                                        (confirm(&visit.viewer, &format!("/settings/keys/{}/revoke", key.id), "Revoke", "danger", &html! {
                                            p { "At once and for good. Sessions and streams of this key end." }
                                            button type="submit" class="danger" { "Revoke this key" }
                                        }))
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
        (pager(visit.query.text("cursor").map(|_| "/settings".to_owned()), next))
        form method="post" action="/settings/keys" {
            (token(&visit.viewer))
            div class="bulk" {
                label { "Role " select name="role" { @for role in [Role::Admin, Role::Producer, Role::Reader, Role::Worker] { option value=(role.as_str()) { (role.as_str()) } } } }
                input name="label" maxlength="200" placeholder="Label" aria-label="Label";
                button type="submit" { "Create key" }
            }
        }
    };
    card("API keys", &html! { "A key can only access its own tenant." }, &body)
}

fn server(visit: &Visit) -> Markup {
    let app = &visit.dashboard.app;
    let (config, policy) = (app.config(), app.engine().policy());
    let rows: Vec<(&str, String)> = vec![
        ("Version", env!("CARGO_PKG_VERSION").to_owned()),
        ("Application of submitted work", config.app.to_string()),
        ("Lease duration", span(policy.lease_millis)),
        ("Visibility timeout of a received message", span(policy.visibility_millis)),
        ("Maximum deliveries of a message", number(u64::from(policy.receives_max))),
        ("Requests per second and key", number(u64::from(config.rate_per_second))),
        ("Maximum number of open connections", number(config.connections_max as u64)),
        ("Live streams per key", number(config.streams_per_key_max as u64)),
        ("Requests per second and tenant", number(u64::from(config.tenant_rate()))),
        ("Live streams per tenant", number(config.tenant_streams_max() as u64)),
        ("Maximum size of a JSON body", bytes(config.body_bytes_max as u64)),
        ("Maximum size of an uploaded file", bytes(config.blob_bytes_max as u64)),
        ("Grace period at shutdown", span(u64::try_from(config.grace.as_millis()).unwrap_or(u64::MAX))),
    ];
    let body = html! {
        div class="wrap" { table class="plain" { tbody { @for (name, value) in rows { tr { td class="faint" { (name) } td { (value) } } } } } }
        p class="faint" { "Where each setting comes from is told by " code { "tidemill config" } " on the server’s machine." }
    };
    card("This server", &html! {}, &body)
}

async fn create(visit: Visit, form: Pairs) -> Result<Outcome, Problem> {
    let mut body = json!({"role": form.text("role")});
    if let Some(label) = form.text("label") {
        body["label"] = label.into();
    }
    let is_keyless = visit.viewer.session.is_none();
    let created: KeyCreated = visit.api.post("/v1/keys", &body).await?;
    // The first key ends keyless mode: nothing but this answer can be shown any more.
    let shown = if is_keyless {
        Screen::new("settings", "Settings")
            .still("head", html! { h1 { "Settings" } })
            .still("created", created_key(&created))
            .still("next", html! { p { "From now on a key is needed. " a class="button primary" href="/login" { "Log in" } } })
    } else {
        screen(&visit, Some(&created)).await?
    };
    Ok(Outcome::Show { screen: Box::new(shown), is_problem: false })
}

async fn revoke(visit: Visit, _: Pairs) -> Result<Outcome, Problem> {
    visit.api.remove(&format!("/v1/keys/{}", encode(visit.part("id")))).await?;
    Ok(Outcome::go("/settings", "The key is out of force."))
}
