//! One script: edit, try out, subscribe.

use axum::http::Method;
use axum::http::header::IF_MATCH;
use maud::{Markup, html};
use serde_json::{Value, json};
use tidemill_matcher::Subscription;
use tidemill_model::{Grant, Script};

use super::super::form::{Pairs, encode};
use super::super::screen::Screen;
use super::super::visit::{Outcome, Sight, Visit};
use super::super::widgets::{button, card, confirm, empty, id, json_text, moment, span, state, token};
use super::Page;
use super::scripts::{execution_rows, log_lines};
use crate::api::{self, ExecutionView, ScriptTestView};
use crate::problem::Problem;

pub(super) fn pages() -> Vec<Page> {
    vec![
        Page::new("/scripts/new", fresh).act("/scripts/new", save_new),
        Page::new("/scripts/{id}", show)
            .act("/scripts/{id}", save)
            .act("/scripts/{id}/delete", delete)
            .act("/scripts/{id}/subscriptions", subscribe)
            .act("/scripts/{id}/subscriptions/{subscription}/enable", enable)
            .act("/scripts/{id}/subscriptions/{subscription}/disable", disable)
            .act("/scripts/{id}/subscriptions/{subscription}/delete", unsubscribe),
    ]
}

const SAMPLE: &str = "console.log(\"got\", ctx.event.type);\nreturn { seen: ctx.event.data };\n";
const SAMPLE_EVENT: &str = "{\n  \"name\": \"Ada\"\n}";

/// What the form holds, whether it was just opened or sent before.
struct Draft {
    /// Absent while it is new.
    saved: Option<Script>,
    id: String,
    name: String,
    source: String,
    grants: Vec<String>,
    event_type: String,
    properties: String,
}

impl Draft {
    fn of(script: Script) -> Self {
        Self {
            id: script.id.to_string(),
            name: script.name.clone(),
            source: script.source.clone(),
            grants: script.grants.iter().map(|grant| grant.as_str().to_owned()).collect(),
            event_type: "user.created".to_owned(),
            properties: SAMPLE_EVENT.to_owned(),
            saved: Some(script),
        }
    }

    fn sent(form: &Pairs, saved: Option<Script>) -> Self {
        let text = |name: &str| form.all(name).next().unwrap_or_default().to_owned();
        Self {
            id: saved.as_ref().map_or_else(|| text("id"), |script| script.id.to_string()),
            name: text("name"),
            // Browsers send line breaks as the network writes them.
            source: text("source").replace("\r\n", "\n"),
            grants: form.all("grant").map(ToOwned::to_owned).collect(),
            event_type: text("eventType"),
            properties: text("properties"),
            saved,
        }
    }

    fn body(&self) -> Value {
        let mut body = json!({"name": self.name, "source": self.source, "grants": self.grants});
        if !self.id.trim().is_empty() {
            body["id"] = self.id.trim().into();
        }
        body
    }

    fn address(&self) -> String {
        self.saved
            .as_ref()
            .map_or_else(|| "/scripts/new".to_owned(), |script| format!("/scripts/{}", script.id))
    }
}

async fn fresh(visit: Visit) -> Result<Sight, Problem> {
    let draft = Draft {
        saved: None,
        id: String::new(),
        name: String::new(),
        source: SAMPLE.to_owned(),
        grants: Vec::new(),
        event_type: "user.created".to_owned(),
        properties: SAMPLE_EVENT.to_owned(),
    };
    Ok(screen(&visit, &draft, None, None).await?.into())
}

async fn find(visit: &Visit) -> Result<Script, Problem> {
    visit.api.get(&format!("/v1/scripts/{}", encode(visit.part("id")))).await
}

async fn show(visit: Visit) -> Result<Sight, Problem> {
    let draft = Draft::of(find(&visit).await?);
    Ok(screen(&visit, &draft, None, None).await?.into())
}

async fn screen(
    visit: &Visit,
    draft: &Draft,
    problem: Option<&Problem>,
    test: Option<&ScriptTestView>,
) -> Result<Screen, Problem> {
    let title = if draft.saved.is_some() { draft.name.clone() } else { "New script".to_owned() };
    let mut screen = Screen::new("scripts", title.clone())
        .still("head", head(visit, draft, &title))
        .still("edit", editor(visit, draft, problem, test));
    if let Some(script) = &draft.saved {
        let asked = format!("/v1/subscriptions?scriptId={}&limit=100", script.id);
        let subscriptions: api::Page<Subscription> = visit.api.get(&asked).await?;
        let asked = format!("/v1/executions?scriptId={}&limit=20", script.id);
        let executions: api::Page<ExecutionView> = visit.api.get(&asked).await?;
        screen = screen.still("subscriptions", subscription_list(visit, script, &subscriptions)).still(
            "executions",
            card("Newest executions", &html! {}, &execution_rows(visit.now, &executions.items)),
        );
    }
    Ok(screen)
}

fn head(visit: &Visit, draft: &Draft, title: &str) -> Markup {
    html! {
        div class="title" {
            div {
                nav class="crumbs" aria-label="Where" { a href="/scripts" { "Scripts" } }
                h1 { (title) }
                @if let Some(script) = &draft.saved {
                    p class="faint" { (id(script.id.as_str(), script.id.as_str())) " version " (script.version) ", changed " (moment(visit.now, script.updated_at.millis())) }
                }
            }
            @if draft.saved.is_some() && visit.is_admin() {
                div class="actions" {
                    (confirm(&visit.viewer, &format!("{}/delete", draft.address()), "Remove", "danger", &html! {
                        p { "Its subscriptions must be gone. Executions that wait for it become dead letters." }
                        button type="submit" class="danger" { "Remove this script" }
                    }))
                }
            }
        }
    }
}

fn editor(visit: &Visit, draft: &Draft, problem: Option<&Problem>, test: Option<&ScriptTestView>) -> Markup {
    let may = visit.is_admin();
    html! {
        form method="post" action=(draft.address()) class="columns" {
            (token(&visit.viewer))
            @if let Some(script) = &draft.saved { input type="hidden" name="version" value=(script.version); }
            section class="card" {
                header { h2 { "Source" } div class="aside" { "the body of a function that sees " code { "ctx" } } }
                div class="stack" {
                    @if let Some(problem) = problem { div class="problem" role="alert" { (problem.detail) } }
                    label { span { "Name" } input name="name" value=(draft.name) maxlength="128" required readonly[!may]; }
                    @if draft.saved.is_none() {
                        label { span { "Id, minted when empty" } input name="id" value=(draft.id) maxlength="64" class="code"; }
                    }
                    label for="source" class="hidden" { "Source" }
                    textarea id="source" name="source" class="code" rows="18" spellcheck="false" required readonly[!may] { (draft.source) }
                    fieldset class="grants" {
                        legend { "Permissions" }
                        @for grant in Grant::ALL {
                            @if grant != Grant::Log {
                                label { input type="checkbox" name="grant" value=(grant.as_str()) checked[draft.grants.iter().any(|own| own == grant.as_str())] disabled[!may]; " " (grant.as_str()) }
                            }
                        }
                    }
                    @if may { div { button type="submit" name="deed" value="save" class="primary" { "Save" } } }
                    p {}
                }
            }
            section class="card" {
                header { h2 { "Try it out" } div class="aside" { "nothing is stored, published or submitted" } }
                div class="stack" {
                    @if let Some(test) = test { (tested(test)) }
                    label { span { "Event type" } input name="eventType" value=(draft.event_type) maxlength="128"; }
                    label for="properties" { "Properties" }
                    textarea id="properties" name="properties" class="code" rows="7" spellcheck="false" { (draft.properties) }
                    @if may { div { button type="submit" name="deed" value="test" { "Test" } } }
                    @else { p class="faint" { "Testing and saving need the role admin." } }
                    p {}
                }
            }
        }
    }
}

fn tested(test: &ScriptTestView) -> Markup {
    html! {
        div id="test-result" tabindex="-1" {
            @if let Some(error) = &test.error {
                div class="problem" role="alert" { strong { (error.class) } pre { (error.message) @if !error.stack.is_empty() { "\n" (error.stack) } } }
            } @else {
                div class="good-box" role="status" { "It ran to its end in " (span(test.duration_ms)) "." }
                @if let Some(result) = &test.result { label { "Result" } (json_text(&result.to_string())) }
            }
            @if let Some(logs) = &test.logs { label { "Log" } (log_lines(&logs.to_string())) }
            @if !test.calls.is_empty() {
                label { "It asked for this, which was not done" }
                @for call in &test.calls { (json_text(&call.to_string())) }
            }
        }
    }
}

fn subscription_list(visit: &Visit, script: &Script, subscriptions: &api::Page<Subscription>) -> Markup {
    let path = |subscription: &Subscription, deed: &str| {
        format!("/scripts/{}/subscriptions/{}/{deed}", script.id, subscription.id)
    };
    let body = html! {
        @if subscriptions.items.is_empty() {
            (empty("It is subscribed to nothing", &html! { "Name an event type below, and it runs for each such event from then on." }))
        } @else {
            div class="wrap" {
                table {
                    thead { tr { th { "Event type" } th class="wide" { "Rules" } th { "State" } th { "Since" } th {} } }
                    tbody {
                        @for subscription in &subscriptions.items {
                            tr {
                                td { strong { (subscription.event_type) } br; span class="faint small" { (subscription.id) } }
                                td class="wide" {
                                    @if subscription.filter_rules.as_str() == "null" { span class="faint" { "every event of the type" } }
                                    @else { code class="output" { (super::super::widgets::cut(subscription.filter_rules.as_str(), 160)) } }
                                }
                                td { (state(if subscription.enabled { "enabled" } else { "disabled" })) }
                                td { (moment(visit.now, subscription.created_at.millis())) }
                                td class="num" {
                                    @if visit.is_admin() {
                                        @if subscription.enabled { (button(&visit.viewer, &path(subscription, "disable"), "Disable", "")) }
                                        @else { (button(&visit.viewer, &path(subscription, "enable"), "Enable", "")) }
                                        " " (button(&visit.viewer, &path(subscription, "delete"), "Remove", "danger"))
                                    }
                                }
                            }
                        }
                    }
                }
            }
        }
        @if visit.is_admin() {
            form method="post" action={ "/scripts/" (script.id) "/subscriptions" } {
                (token(&visit.viewer))
                div class="bulk" {
                    input name="eventType" placeholder="event type, such as user.created" aria-label="Event type" maxlength="128" required;
                    input name="rules" class="code" placeholder="rules as JSON, optional" aria-label="Rules as JSON";
                    button type="submit" { "Subscribe" }
                }
            }
        }
    };
    card("Subscriptions", &html! {}, &body)
}

/// A form that cannot be saved is shown again with what was typed.
async fn refused(visit: &Visit, draft: Draft, problem: Problem) -> Result<Outcome, Problem> {
    if !matches!(problem.status.as_u16(), 400 | 409 | 412 | 413 | 503) {
        return Err(problem);
    }
    let screen = screen(visit, &draft, Some(&problem), None).await?;
    Ok(Outcome::Show { screen: Box::new(screen), is_problem: true })
}

async fn test(visit: &Visit, draft: Draft) -> Result<Outcome, Problem> {
    let text = if draft.properties.trim().is_empty() { "{}" } else { &draft.properties };
    let properties: Value = match serde_json::from_str(text) {
        Ok(properties) => properties,
        Err(error) => {
            let problem = Problem::invalid_field("properties", format!("is no JSON: {error}"));
            return refused(visit, draft, problem).await;
        }
    };
    let name = if draft.name.trim().is_empty() { "test" } else { &draft.name };
    let body = json!({
        "name": name,
        "source": draft.source,
        "grants": draft.grants,
        "eventType": draft.event_type,
        "properties": properties,
    });
    match visit.api.post::<ScriptTestView>("/v1/script-tests", &body).await {
        Ok(tested) => {
            let screen = screen(visit, &draft, None, Some(&tested)).await?;
            Ok(Outcome::Show { screen: Box::new(screen), is_problem: false })
        }
        Err(problem) => refused(visit, draft, problem).await,
    }
}

async fn save_new(visit: Visit, form: Pairs) -> Result<Outcome, Problem> {
    let draft = Draft::sent(&form, None);
    if form.text("deed") == Some("test") {
        return test(&visit, draft).await;
    }
    match visit.api.post::<Script>("/v1/scripts", &draft.body()).await {
        Ok(script) => {
            Ok(Outcome::go(format!("/scripts/{}", script.id), "Saved. Subscribe it to events below."))
        }
        Err(problem) => refused(&visit, draft, problem).await,
    }
}

async fn save(visit: Visit, form: Pairs) -> Result<Outcome, Problem> {
    let saved = find(&visit).await?;
    let draft = Draft::sent(&form, Some(saved));
    if form.text("deed") == Some("test") {
        return test(&visit, draft).await;
    }
    // What somebody else saved meanwhile is not written over.
    let if_match = form.text("version").map(|version| (IF_MATCH, version.to_owned()));
    let path = format!("/v1/scripts/{}", encode(visit.part("id")));
    match visit.api.change::<Script>(Method::PUT, &path, if_match, &draft.body()).await {
        Ok(script) => Ok(Outcome::go(draft.address(), format!("Saved as version {}.", script.version))),
        Err(problem) => refused(&visit, draft, problem).await,
    }
}

async fn delete(visit: Visit, _: Pairs) -> Result<Outcome, Problem> {
    visit.api.remove(&format!("/v1/scripts/{}", encode(visit.part("id")))).await?;
    Ok(Outcome::go("/scripts", "Removed."))
}

async fn subscribe(visit: Visit, form: Pairs) -> Result<Outcome, Problem> {
    let script = visit.part("id");
    let mut body = json!({"scriptId": script, "eventType": form.text("eventType").map(str::trim)});
    if let Some(rules) = form.text("rules") {
        body["filterRules"] = serde_json::from_str(rules)
            .map_err(|error| Problem::invalid_field("rules", format!("is no JSON: {error}")))?;
    }
    let _: Subscription = visit.api.post("/v1/subscriptions", &body).await?;
    Ok(Outcome::go(format!("/scripts/{}", encode(script)), "Subscribed."))
}

async fn steer(visit: &Visit, deed: &str, note: &str) -> Result<Outcome, Problem> {
    let path = format!("/v1/subscriptions/{}", encode(visit.part("subscription")));
    if deed == "delete" {
        visit.api.remove(&path).await?;
    } else {
        let _: Subscription = visit.api.post(&format!("{path}/{deed}"), &json!({})).await?;
    }
    Ok(Outcome::go(format!("/scripts/{}", encode(visit.part("id"))), note))
}

async fn enable(visit: Visit, _: Pairs) -> Result<Outcome, Problem> {
    steer(&visit, "enable", "Enabled.").await
}

async fn disable(visit: Visit, _: Pairs) -> Result<Outcome, Problem> {
    steer(&visit, "disable", "Disabled.").await
}

async fn unsubscribe(visit: Visit, _: Pairs) -> Result<Outcome, Problem> {
    steer(&visit, "delete", "The subscription was removed.").await
}
