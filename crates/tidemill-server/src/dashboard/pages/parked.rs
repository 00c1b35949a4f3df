//! What waits for somebody: the list, and the same for many of them, with a preview before and a look at it meanwhile.

use std::fmt::Write;

use maud::{Markup, html};
use serde_json::{Value, json};

use super::super::chart::share;
use super::super::form::{Pairs, encode, query};
use super::super::screen::{Screen, Watch};
use super::super::visit::{Outcome, Sight, Visit};
use super::super::widgets::{
    button, card, counted, cut, empty, figure, id, maybe_moment, moment, number, pager, state, tail, token,
};
use super::Page;
use super::workflow::output_of;
use crate::api::{
    self, BulkActionName, BulkFilterView, BulkPreviewView, BulkStateName, BulkView, WorkflowExecutionView,
};
use crate::problem::Problem;

/// Conditions that a list may have.
const CONDITIONS: [(&str, &str); 5] =
    [("code", "Code"), ("county", "County"), ("phase", "Phase"), ("step", "Step"), ("type", "Type")];
/// Executions that one form may name.
const MANY_MAX: usize = 200;
/// Bulks that a page shows.
const BULKS_MAX: usize = 8;

pub(super) fn pages() -> Vec<Page> {
    vec![
        Page::new("/parked", show)
            .filters(&[
                ("code", &[]),
                ("county", &[]),
                ("phase", &[]),
                ("step", &[]),
                ("type", &[]),
                ("cursor", &[]),
            ])
            .live()
            .act("/parked/bulk", bulk),
        Page::new("/parked/bulks/{id}", follow).live().act("/parked/bulks/{id}/cancel", cancel),
    ]
}

/// Which parked executions are meant, as a form says it.
#[derive(Debug, Default)]
pub(super) struct Aim {
    /// Names from [`CONDITIONS`] with what they must be.
    conditions: Vec<(&'static str, String)>,
    executions: Vec<String>,
    settled: bool,
}

impl Aim {
    pub(super) fn code(code: &str) -> Self {
        Self { conditions: vec![("code", code.to_owned())], ..Self::default() }
    }

    fn read(form: &Pairs) -> Self {
        let given = |(name, _): (&'static str, _)| Some((name, form.text(name)?.trim().to_owned()));
        Self {
            conditions: CONDITIONS.into_iter().filter_map(given).collect(),
            executions: form.all("execution").take(MANY_MAX).map(ToOwned::to_owned).collect(),
            settled: form.text("settled").is_some(),
        }
    }

    fn filter(&self) -> Value {
        let mut filter = json!({});
        for (name, text) in &self.conditions {
            filter[*name] = json!(text);
        }
        if !self.executions.is_empty() {
            filter["executionIds"] = json!(self.executions);
        }
        if self.settled {
            filter["settled"] = json!(true);
        }
        if filter.as_object().is_some_and(serde_json::Map::is_empty) {
            filter["all"] = json!(true);
        }
        filter
    }

    /// The same once more, hidden in another form.
    fn fields(&self) -> Markup {
        html! {
            @for (name, text) in &self.conditions { input type="hidden" name=(name) value=(text); }
            @for execution in &self.executions { input type="hidden" name="execution" value=(execution); }
        }
    }

    fn describe(&self) -> String {
        let mut told: Vec<String> =
            self.conditions.iter().map(|(name, text)| format!("{name} {text}")).collect();
        match self.executions.len() {
            0 => {}
            1 => told.extend(self.executions.first().cloned()),
            count => told.push(format!("{count} executions")),
        }
        if told.is_empty() { "all that are parked".to_owned() } else { told.join(", ") }
    }

    fn back(&self) -> String {
        match self.conditions.first() {
            Some(("code", code)) if self.executions.is_empty() => super::errors::address(code),
            _ => "/parked".to_owned(),
        }
    }
}

async fn show(visit: Visit) -> Result<Sight, Problem> {
    let given = |name: &str| visit.query.text(name).map(str::trim);
    let conditions = CONDITIONS.map(|(name, _)| (name, given(name)));
    let cursor = given("cursor");
    let asked = |rest: &[(&str, Option<&str>)]| query(&[&conditions[..], rest].concat());
    let path = asked(&[("cursor", cursor), ("limit", Some("50")), ("parked", Some("true"))]);
    let found: api::Page<WorkflowExecutionView> =
        visit.api.get(&format!("/v1/workflow/executions{path}")).await?;
    let is_filtered = conditions.iter().any(|(_, text)| text.is_some());
    let address = |cursor: Option<&str>| format!("/parked{}", asked(&[("cursor", cursor)]));
    let may = visit.is_admin();
    let list = html! {
        @if found.items.is_empty() {
            @if is_filtered {
                (empty("Nothing like that is parked", &html! { a href="/parked" { "Show all that is parked" } }))
            } @else {
                (empty("Nothing is parked", &html! { "Workflows that failed with a task token wait here, and tasks with " code { "onFailure: park" } "." }))
            }
        } @else {
            (rows(&found.items, may, visit.now))
        }
        (pager(cursor.map(|_| address(None)), found.next_cursor.as_deref().map(|next| address(Some(next)))))
    };
    let body = if may && !found.items.is_empty() {
        html! {
            form method="post" action="/parked/bulk" {
                (token(&visit.viewer))
                input type="hidden" name="scope" value="checked";
                (list)
                div class="bulk" {
                    span class="faint" { "With selected:" }
                    button type="submit" name="action" value="resume" { "Resume…" }
                    button type="submit" name="action" value="fail" class="danger" { "Fail…" }
                }
            }
            form method="post" action="/parked/bulk" class="bulk" {
                (token(&visit.viewer))
                @for (name, text) in conditions { @if let Some(text) = text { input type="hidden" name=(name) value=(text); } }
                span class="faint" { (if is_filtered { "With all that match:" } else { "With all:" }) }
                button type="submit" name="action" value="resume" { "Resume all…" }
                button type="submit" name="action" value="fail" class="danger" { "Fail all…" }
            }
        }
    } else {
        list
    };
    let head = html! {
        h1 { "Parked" }
        form class="filter grid dense" method="get" action="/parked" role="search" {
            @for (name, label) in CONDITIONS {
                @if name != "county" || has_county(&found.items) || given(name).is_some() { label { (label) input name=(name) value=[given(name)]; } }
            }
            div { button type="submit" { "Filter" } @if is_filtered { " " a class="button" href="/parked" { "All" } } }
        }
    };
    let screen = Screen::new("parked", "Parked")
        .watching(Watch::Tenant)
        .still("head", head)
        .live("bulks", bulks(&visit, None).await?)
        .live("list", card("Waiting", &html! { "longest first" }, &body));
    Ok(screen.into())
}

/// Whether any of them names a county: not all that send workflow events know such a thing.
fn has_county(items: &[WorkflowExecutionView]) -> bool {
    items.iter().any(|item| item.named_county().is_some())
}

fn rows(items: &[WorkflowExecutionView], may: bool, now: u64) -> Markup {
    let has_county = has_county(items);
    html! {
        div class="wrap" {
            table {
                thead {
                    tr {
                        @if may { th class="check" { input type="checkbox" data-check-all aria-label="Check all" hidden; } }
                        th { "Execution" } th { "Code" } @if has_county { th class="less" { "County" } } th class="less" { "Step" } th { "Since" } th class="less" { "Expires" }
                    }
                }
                tbody {
                    @for item in items {
                        @let execution = item.execution_id.as_str();
                        tr {
                            @if may { td class="check" { input type="checkbox" name="execution" value=(execution) aria-label={ "Check " (execution) }; } }
                            td class="name" {
                                a href=(super::workflow::address(execution)) { (tail(execution, 18)) }
                                @if item.request_id.is_some() { span class="faint" { "a task" } }
                            }
                            td { (codes(item)) }
                            @if has_county { td class="less" { (cut(item.named_county().unwrap_or_default(), 40)) } }
                            td class="less" { (cut(&item.step, 40)) @if item.phase != item.step { span class="faint small" { " " (cut(&item.phase, 40)) } } }
                            td { (maybe_moment(now, item.parked_at.map(tidemill_model::Timestamp::millis))) }
                            td class="less" { (maybe_moment(now, item.deadline.map(tidemill_model::Timestamp::millis))) }
                        }
                    }
                }
            }
        }
    }
}

pub(super) fn codes(item: &WorkflowExecutionView) -> Markup {
    html! {
        @for code in item.codes.iter().take(3) { a href=(super::errors::address(code.as_str())) { code { (cut(code.as_str(), 30)) } } " " }
        @if item.codes.len() > 3 { span class="faint" { "and " (item.codes.len() - 3) " more" } }
        @if item.codes.is_empty() { span class="faint" { "none" } }
    }
}

/// How many executions wait because of a code, and whether there are more.
pub(super) async fn count(visit: &Visit, code: &str) -> Result<(usize, bool), Problem> {
    let asked = query(&[("parked", Some("true")), ("code", Some(code)), ("limit", Some("100"))]);
    let found: api::Page<WorkflowExecutionView> =
        visit.api.get(&format!("/v1/workflow/executions{asked}")).await?;
    Ok((found.items.len(), found.next_cursor.is_some()))
}

fn waiting_text((count, more): (usize, bool)) -> String {
    format!("{}{}", number(count as u64), if more { "+" } else { "" })
}

pub(super) fn figure_of(waiting: (usize, bool), code: &str) -> Markup {
    let tone = if waiting.0 > 0 { "parked" } else { "calm" };
    figure(
        "parked",
        &waiting_text(waiting),
        tone,
        Some(&format!("/parked{}", query(&[("code", Some(code))]))),
    )
}

/// What to do with all that waits because of something.
pub(super) fn steer(visit: &Visit, waiting: (usize, bool), aim: &Aim) -> Markup {
    if !visit.is_admin() || waiting.0 == 0 {
        return html! {};
    }
    let body = html! {
        form method="post" action="/parked/bulk" class="bulk" {
            (token(&visit.viewer))
            (aim.fields())
            span class="faint" { "You see first what it will touch:" }
            button type="submit" name="action" value="resume" class="primary" { "Resume all…" }
            button type="submit" name="action" value="fail" class="danger" { "Fail all…" }
        }
    };
    card("Parked on it", &html! { (waiting_text(waiting)) " wait" }, &body)
}

fn word(state: BulkStateName) -> &'static str {
    match state {
        BulkStateName::Running => "running",
        BulkStateName::Done => "completed",
        BulkStateName::Cancelled => "cancelled",
    }
}

fn verb(action: BulkActionName) -> &'static str {
    match action {
        BulkActionName::Resume => "Resume",
        BulkActionName::Fail => "Fail",
    }
}

fn filter_text(filter: &BulkFilterView) -> String {
    let text = |name: &str, value: Option<&str>| value.map(|value| format!("{name} {value}"));
    let kind = filter.error_type.map(|kind| kind.to_string());
    let mut told: Vec<String> = [
        text("code", filter.code.as_ref().map(tidemill_model::workflow::ErrorCode::as_str)),
        text("type", kind.as_deref()),
        text("county", filter.county.as_deref()),
        text("phase", filter.phase.as_deref()),
        text("step", filter.step.as_deref()),
    ]
    .into_iter()
    .flatten()
    .collect();
    if let Some(named) = &filter.execution_ids {
        told.push(counted(named.len() as u64, "named execution"));
    }
    if filter.settled {
        told.push("without open errors".to_owned());
    }
    if told.is_empty() { "all that were parked".to_owned() } else { told.join(", ") }
}

/// How far a bulk is, as a bar.
fn progress(bulk: &BulkView) -> Markup {
    let left = bulk.total.saturating_sub(bulk.done + bulk.failed);
    let about = format!("{} of {}", number(bulk.done), number(bulk.total));
    let parts =
        [("completed", bulk.done), ("failed", bulk.failed), ("skipped", bulk.skipped), ("waiting", left)];
    share(&parts, &about)
}

/// Bulks that run, and those that ended last.
pub(super) async fn bulks(visit: &Visit, code: Option<&str>) -> Result<Markup, Problem> {
    let all: api::Page<BulkView> = visit.api.get("/v1/workflow/bulk").await?;
    let fits = |bulk: &&BulkView| {
        code.is_none_or(|code| bulk.filter.code.as_ref().is_some_and(|own| own.as_str() == code))
    };
    let shown: Vec<&BulkView> = all.items.iter().filter(fits).take(BULKS_MAX).collect();
    let body = html! {
        div class="wrap" {
            table {
                thead { tr { th { "Bulk" } th { "State" } th class="wide" { "Progress" } th class="num" { "Done" } th class="less" { "By" } th class="less" { "Began" } } }
                tbody {
                    @for bulk in &shown {
                        tr {
                            td class="name" { a href={ "/parked/bulks/" (bulk.id) } { (verb(bulk.action)) } span class="faint" { (cut(&filter_text(&bulk.filter), 60)) } }
                            td { (state(word(bulk.state))) }
                            td class="wide" { (progress(bulk)) }
                            td class="num" { (number(bulk.done)) "/" (number(bulk.total)) }
                            td class="less" { (bulk.by.as_deref().unwrap_or_default()) }
                            td class="less" { (moment(visit.now, bulk.created_at.millis())) }
                        }
                    }
                }
            }
        }
    };
    Ok(html! { @if !shown.is_empty() { (card("Bulks", &html! { "newest first" }, &body)) } })
}

/// Shows what a bulk would touch, and begins it once somebody has seen that.
async fn bulk(visit: Visit, form: Pairs) -> Result<Outcome, Problem> {
    let action = match form.text("action") {
        Some("resume") => BulkActionName::Resume,
        Some("fail") => BulkActionName::Fail,
        _ => return Err(Problem::invalid_field("action", "must be resume or fail")),
    };
    let aim = Aim::read(&form);
    if aim.executions.is_empty() && form.text("scope") == Some("checked") {
        return Ok(Outcome::go("/parked", "Nothing was checked."));
    }
    let mut told = None;
    if form.text("deed") == Some("start") {
        let started = match wish(action, &aim, &form) {
            Ok(wish) => visit.api.post::<BulkView>("/v1/workflow/bulk", &wish).await,
            Err(problem) => Err(problem),
        };
        match started {
            Ok(bulk) => {
                let note = format!("{}: {}.", verb(action), counted(bulk.total, "execution"));
                return Ok(Outcome::go(format!("/parked/bulks/{}", bulk.id), note));
            }
            // What was typed is shown again with what is wrong with it.
            Err(problem) if problem.status.as_u16() == 400 => told = Some(problem),
            Err(problem) => return Err(problem),
        }
    }
    let asked = json!({"action": action.as_str(), "filter": aim.filter(), "dryRun": true});
    let preview: BulkPreviewView = visit.api.post("/v1/workflow/bulk", &asked).await?;
    let is_problem = told.is_some();
    let screen = preview_screen(&visit, action, &aim, &preview, &form, told.as_ref());
    Ok(Outcome::Show { screen: Box::new(screen), is_problem })
}

/// What the API is asked for.
fn wish(action: BulkActionName, aim: &Aim, form: &Pairs) -> Result<Value, Problem> {
    let mut wish = json!({"action": action.as_str(), "filter": aim.filter(), "reason": form.text("reason")});
    if let Some(rate) = form.text("rate") {
        let rate: u32 =
            rate.trim().parse().map_err(|_| Problem::invalid_field("rate", "must be a whole number"))?;
        wish["ratePerSecond"] = json!(rate);
    }
    match action {
        BulkActionName::Resume => {
            wish["output"] = output_of(form)?;
            if form.text("mode") == Some("rerun") {
                wish["mode"] = json!("rerun");
            }
        }
        BulkActionName::Fail => {
            wish["error"] = json!(form.text("error"));
            wish["cause"] = json!(form.text("cause"));
        }
    }
    Ok(wish)
}

fn preview_screen(
    visit: &Visit,
    action: BulkActionName,
    aim: &Aim,
    preview: &BulkPreviewView,
    form: &Pairs,
    told: Option<&Problem>,
) -> Screen {
    let count = number(preview.total);
    let by_code = html! {
        @if !preview.by_code.is_empty() {
            div class="wrap" { table {
                thead { tr { th { "Parked with" } th class="num" { "Executions" } } }
                tbody { @for own in &preview.by_code { tr { td { a href=(super::errors::address(own.code.as_str())) { code { (cut(own.code.as_str(), 60)) } } } td class="num" { (number(own.executions)) } } } }
            } }
        }
    };
    let ask = html! {
        form method="post" action="/parked/bulk" class="stack" {
            (token(&visit.viewer))
            (aim.fields())
            input type="hidden" name="action" value=(action.as_str());
            @if let Some(problem) = told { p class="problem" role="alert" { (problem.detail) } }
            @match action {
                BulkActionName::Resume => {
                    label { span { "Output, as JSON, that they go on with" } textarea class="code" name="output" rows="3" spellcheck="false" placeholder="{\"resolved\": true}" { (form.text("output").unwrap_or_default()) } }
                    label { input type="checkbox" name="mode" value="rerun" checked[form.text("mode").is_some()]; " Run tasks of ours again instead of taking the output for theirs" }
                }
                BulkActionName::Fail => {
                    label { span { "Error" } input name="error" maxlength="256" placeholder="ResolutionFailed" value=[form.text("error")]; }
                    label { span { "Cause" } input name="cause" maxlength="2000" placeholder="Unable to resolve errors" value=[form.text("cause")]; }
                }
            }
            label { input type="checkbox" name="settled" value="yes" checked[aim.settled]; " Only those without an open error" }
            label { span { "How many a second" } input type="number" name="rate" min="1" max="100000" placeholder="as fast as it goes" value=[form.text("rate")]; }
            label { span { "Why" } input name="reason" maxlength="1000" placeholder="optional" value=[form.text("reason")]; }
            div class="row" {
                button type="submit" name="deed" value="start" class=(if action == BulkActionName::Fail { "danger solid" } else { "primary" }) { (verb(action)) " " (count) " executions" }
                a class="button" href=(aim.back()) { "Back" }
            }
        }
    };
    let first = html! {
        @if !preview.first.is_empty() { (card("The first of them", &html! { "longest first" }, &rows(&preview.first, false, visit.now))) }
    };
    let head = html! {
        nav class="crumbs" aria-label="Where" { a href="/parked" { "Parked" } }
        h1 { (verb(action)) " " (count) " parked executions?" }
        p { (aim.describe()) "." @if let Some(oldest) = preview.oldest { " The oldest was parked " (moment(visit.now, oldest.millis())) "." } }
        p class="faint" { "Nothing has happened yet. What is parked from now on is not touched." }
    };
    let body = if preview.total == 0 {
        empty("There is nothing to do", &html! { a href=(aim.back()) { "Back" } })
    } else {
        html! { div class="columns" { (card(verb(action), &html! {}, &ask)) (card("What it will touch", &html! { (count) }, &by_code)) } (first) }
    };
    Screen::new("parked", "Preview").still("head", head).still("preview", body)
}

async fn follow(visit: Visit) -> Result<Sight, Problem> {
    let path = format!("/v1/workflow/bulk/{}", encode(visit.part("id")));
    let bulk: BulkView = visit.api.get(&path).await?;
    let left = bulk.total.saturating_sub(bulk.done + bulk.failed);
    let head = html! {
        div class="title" {
            div {
                nav class="crumbs" aria-label="Where" { a href="/parked" { "Parked" } @if let Some(code) = &bulk.filter.code { " / " a href=(super::errors::address(code.as_str())) { (cut(code.as_str(), 60)) } } }
                h1 { (verb(bulk.action)) " " (counted(bulk.total, "execution")) " " (state(word(bulk.state))) }
                p class="faint" { (id(&bulk.id, &bulk.id)) " " (filter_text(&bulk.filter)) }
            }
            @if visit.is_admin() && bulk.state == BulkStateName::Running {
                div class="actions" { (button(&visit.viewer, &format!("/parked/bulks/{}/cancel", bulk.id), "Stop", "danger")) }
            }
        }
        div class="progress-line" { (progress(&bulk)) }
        div class="figures" {
            (figure("done", &format!("{}/{}", number(bulk.done), number(bulk.total)), "completed", None))
            (figure("left", &number(left), if left > 0 && bulk.state == BulkStateName::Running { "running" } else { "calm" }, None))
            (figure("could not", &number(bulk.failed), if bulk.failed > 0 { "failed" } else { "calm" }, None))
            (figure("skipped", &number(bulk.skipped), "calm", None))
        }
        dl class="facts" {
            div { dt { "Began" } dd { (moment(visit.now, bulk.created_at.millis())) } }
            @if let Some(end) = bulk.ended_at { div { dt { "Ended" } dd { (moment(visit.now, end.millis())) } } }
            @if let Some(rate) = bulk.rate_per_second { div { dt { "A second" } dd { (number(u64::from(rate))) } } }
            @if let Some(by) = &bulk.by { div { dt { "By" } dd { (by) } } }
            @if let Some(reason) = &bulk.reason { div { dt { "Why" } dd { (reason) } } }
        }
        p class="faint" { "The server carries it out by itself, also after a restart. You may leave this page." }
    };
    let screen = Screen::new("parked", "Bulk").watching(Watch::Tenant).live("bulk", head);
    Ok(screen.into())
}

async fn cancel(visit: Visit, _: Pairs) -> Result<Outcome, Problem> {
    let id = encode(visit.part("id"));
    let ended: BulkView = visit.api.post(&format!("/v1/workflow/bulk/{id}/cancel"), &json!({})).await?;
    let mut note = String::from("Stopped");
    let _ = write!(note, "; {} of {} were done.", number(ended.done), number(ended.total));
    Ok(Outcome::go(format!("/parked/bulks/{id}"), note))
}
