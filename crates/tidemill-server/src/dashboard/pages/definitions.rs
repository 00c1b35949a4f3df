//! Task definitions: all of them, and one with its versions.

use maud::{Markup, html};
use tidemill_model::{Json, Run, TaskName};

use super::super::form::{encode, query};
use super::super::screen::Screen;
use super::super::visit::{Sight, Visit};
use super::super::widgets::{card, cut, empty, json as json_block, moment, number, pager};
use super::Page;
use crate::api::{self, Definition};
use crate::problem::Problem;

/// Versions that are listed with their time, the newest first.
const VERSIONS_MAX: u64 = 20;
/// The characters of a command or a prompt in a list.
const WORK_CHARS_MAX: usize = 90;

pub(super) fn pages() -> Vec<Page> {
    vec![Page::new("/definitions", show), Page::new("/definitions/{name}", show_one)]
}

async fn show(visit: Visit) -> Result<Sight, Problem> {
    let cursor = visit.query.text("cursor");
    let asked = query(&[("cursor", cursor), ("limit", Some("50"))]);
    let found: api::Page<Definition> = visit.api.get(&format!("/v1/task-definitions{asked}")).await?;
    let address = |cursor: Option<&str>| format!("/definitions{}", query(&[("cursor", cursor)]));
    let body = html! {
        @if found.items.is_empty() {
            (empty("No definitions yet", &html! { "A definition says what tasks of its name do: " code { "tidemill definitions create FILE" } "." }))
        } @else {
            (rows(&found.items, visit.now))
        }
        (pager(cursor.map(|_| address(None)), found.next_cursor.as_deref().map(|next| address(Some(next)))))
    };
    let screen = Screen::new("definitions", "Definitions")
        .still("head", html! { h1 { "Definitions" } })
        .still("list", card("Task definitions", &html! { "by name" }, &body));
    Ok(screen.into())
}

fn rows(found: &[Definition], now: u64) -> Markup {
    html! {
        div class="wrap" {
            table {
                thead { tr { th { "Name" } th { "Runner" } th class="wide less" { "What it runs" } th class="num" { "Version" } th { "Changed" } } }
                tbody {
                    @for definition in found {
                        tr {
                            td class="name" {
                                a href=(address_of(definition.name(), None)) { (definition.name().as_str()) }
                                @if let Some(about) = &definition.draft.description { span class="faint" { (cut(about, 80)) } }
                            }
                            td { (definition.draft.runner.as_str()) }
                            td class="wide less" { code class="output" { (cut(&work_of(definition), WORK_CHARS_MAX)) } }
                            td class="num" { (definition.version) }
                            td { (moment(now, definition.updated_at.millis())) }
                        }
                    }
                }
            }
        }
    }
}

fn address_of(name: &TaskName, version: Option<u64>) -> String {
    let version = version.map(|version| version.to_string());
    format!("/definitions/{}{}", encode(name.as_str()), query(&[("version", version.as_deref())]))
}

/// What a definition runs, in one text.
fn work_of(definition: &Definition) -> String {
    let draft = &definition.draft;
    match (&draft.command, &draft.script, &draft.agent.prompt) {
        (Some(Run::Shell(text)), ..) => text.clone(),
        (Some(Run::Argv(arguments)), ..) => arguments.join(" "),
        (None, Some(script), _) => script.clone(),
        (None, None, Some(prompt)) => prompt.clone(),
        (None, None, None) => String::new(),
    }
}

async fn show_one(visit: Visit) -> Result<Sight, Problem> {
    let given = visit.part("name");
    let name = TaskName::new(given).map_err(|_| Problem::not_found("task definition", given))?;
    let version = visit.query.text("version");
    let path = format!("/v1/task-definitions/{}", encode(name.as_str()));
    let definition: Definition = visit.api.get(&format!("{path}{}", query(&[("version", version)]))).await?;
    // One that was removed has no newest version, but what it was can be read.
    let newest: Option<Definition> = visit.api.find(&path).await?;
    let last = newest.as_ref().map_or(definition.version, |newest| newest.version);
    let mut versions = Vec::new();
    for number in (1..=last).rev().take(usize::try_from(VERSIONS_MAX).unwrap_or(1)) {
        let found: Option<Definition> = visit.api.find(&format!("{path}?version={number}")).await?;
        versions.extend(found);
    }
    let is_newest = newest.as_ref().is_some_and(|newest| newest.version == definition.version);
    let screen = Screen::new("definitions", name.as_str())
        .still("head", header(&definition, newest.is_some(), is_newest, visit.now))
        .still("work", work(&definition))
        .still("versions", version_list(&versions, definition.version, last, visit.now))
        .still("whole", card("As it is stored", &html! {}, &json_block(&Json::of(&definition))));
    Ok(screen.into())
}

fn header(definition: &Definition, is_there: bool, is_newest: bool, now: u64) -> Markup {
    let draft = &definition.draft;
    html! {
        nav class="crumbs" aria-label="Where" { a href="/definitions" { "Definitions" } }
        h1 { (draft.name.as_str()) " " span class="faint small" { "version " (definition.version) } }
        @if !is_there { div class="notice" { "This definition was removed. Jobs that were submitted with it keep what they had." } }
        @else if !is_newest { div class="notice" { "This is an earlier version. " a href=(address_of(&draft.name, None)) { "Show the newest" } } }
        @if let Some(about) = &draft.description { p { (about) } }
        dl class="facts" {
            div { dt { "Runner" } dd { (draft.runner.as_str()) } }
            div { dt { "Changed" } dd { (moment(now, definition.updated_at.millis())) } }
            @if let Some(timeout) = draft.timeout { div { dt { "Time limit" } dd { (timeout) } } }
            @if let Some(attempts) = draft.max_attempts.or(draft.retry.max_attempts) { div { dt { "Attempts" } dd { (attempts) } } }
            @if !draft.secrets.is_empty() { div { dt { "Secrets" } dd { (cut(&draft.secrets.join(", "), 160)) } } }
            @if !draft.open_env.is_empty() { div { dt { "Variables that others may set" } dd { (cut(&draft.open_env.join(", "), 160)) } } }
            @for (name, value) in &draft.labels { div { dt { (name) } dd { (value) } } }
        }
        p { a href={ "/tasks" (query(&[("name", Some(draft.name.as_str()))])) } { "Tasks with this definition" } }
    }
}

fn work(definition: &Definition) -> Markup {
    let draft = &definition.draft;
    let text = work_of(definition);
    let title = match (&draft.command, &draft.script) {
        (Some(_), _) => "Command",
        (None, Some(_)) => "Script",
        (None, None) => "Prompt",
    };
    html! {
        @if !text.is_empty() { (card(title, &html! {}, &html! { pre class="json" tabindex="0" { (text) } })) }
    }
}

fn version_list(versions: &[Definition], current: u64, last: u64, now: u64) -> Markup {
    let body = html! {
        div class="wrap" {
            table {
                thead { tr { th { "Version" } th { "Runner" } th { "Changed" } } }
                tbody {
                    @for version in versions {
                        tr {
                            td class="mixed" {
                                a href=(address_of(version.name(), Some(version.version))) aria-current=[(version.version == current).then_some("true")] { "Version " (version.version) }
                                @if version.version == current { span class="faint" { " shown here" } }
                            }
                            td { (version.draft.runner.as_str()) }
                            td { (moment(now, version.updated_at.millis())) }
                        }
                    }
                }
            }
        }
        @if last > VERSIONS_MAX { p class="faint" { "The newest " (VERSIONS_MAX) " of " (number(last)) "." } }
    };
    card("Versions", &html! {}, &body)
}
