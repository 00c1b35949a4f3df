//! Dead letters of tasks, scripts and deliveries: list, look, replay, discard, one or many. None is ever deleted.

use axum::http::{Method, StatusCode};
use tidemill_engine::backend::Backend;
use tidemill_engine::commit::MessageId;
use tidemill_engine::engine::{DeliveryFilter, EngineError, LetterFilter, ManyDeliveries, ManyLetters};
use tidemill_engine::execution::{ExecutionId, ScriptLetter};
use tidemill_engine::outbound::{DeliveryId, DeliveryLetter};
use tidemill_engine::record::{DeadLetter, DeadLetterState, RecordKey, RecordValue};
use tidemill_engine::reply::Refusal;
use tidemill_model::{EventId, EventType, ScriptId, TenantId, Timestamp};

use super::jobs::all_or_some;
use super::scripts;
use crate::api::{
    DeadLetterView, DeliveryLetterView, LetterKind, LettersFilter, ManyLettersView, Page, Replayed,
    ScriptLetterView, TaskLetterView,
};
use crate::problem::Problem;
use crate::request::param::Kind;
use crate::request::{json_body, list_cursor};
use crate::route::{ADMIN, Call, READ, Reply, Route, json, page_size};
use crate::views::View;

const GROUP: &str = "Dead letters";
/// 32 digits for a task's, a UUID for all others.
const ID: Kind = Kind::Word { most: 36 };
/// How many one call changes.
const MANY_MAX: usize = 1_000;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::GET,
            "/v1/dead-letters",
            READ,
            [GROUP, "listDeadLetters", "List dead letters of one kind, oldest first"],
            list,
        )
        .query("kind", Kind::Choice(&["task", "script", "event"]), "`task` when absent.")
        .query("state", Kind::Choice(&["open", "replayed", "discarded"]), "Only those in this state.")
        .query("scriptId", scripts::ID, "Only of this script; for the kind `script`.")
        .query(
            "eventType",
            Kind::Text { most: EventType::LENGTH_MAX },
            "Only of events of this type; not for the kind `task`, like both below.",
        )
        .query("from", Kind::Moment, "Failed at this moment or later.")
        .query("to", Kind::Moment, "Failed at this moment or before.")
        .paged()
        .gives::<Page<DeadLetterView>>(200, "A page of dead letters."),
        Route::new(
            Method::POST,
            "/v1/dead-letters/replay",
            ADMIN,
            [GROUP, "replayDeadLetters", "Do the work of many again"],
            replay_many,
        )
        .about("With `dryRun` nothing is done: the answer tells which ones it would be.")
        .reads::<LettersFilter>()
        .example(serde_json::json!({"kind": "script", "scriptId": "no-such-script"}))
        .gives::<ManyLettersView>(202, "Those that are done again."),
        Route::new(
            Method::POST,
            "/v1/dead-letters/discard",
            ADMIN,
            [GROUP, "discardDeadLetters", "Put many aside"],
            discard_many,
        )
        .about("They stay on record. With `dryRun` nothing is done: the answer tells which ones it would be.")
        .reads::<LettersFilter>()
        .example(serde_json::json!({"kind": "script", "scriptId": "no-such-script"}))
        .gives::<ManyLettersView>(200, "Those that were put aside."),
        Route::new(
            Method::GET,
            "/v1/dead-letters/{id}",
            READ,
            [GROUP, "getDeadLetter", "Look at a dead letter"],
            get,
        )
        .part("id", ID, "The dead letter.")
        .gives::<DeadLetterView>(200, "The dead letter."),
        Route::new(
            Method::POST,
            "/v1/dead-letters/{id}/replay",
            ADMIN,
            [GROUP, "replayDeadLetter", "Do its work again"],
            replay,
        )
        .about(
            "A task runs again; a script runs once more for that event and for no other subscription; an \
             event is delivered once more.",
        )
        .part("id", ID, "The dead letter.")
        .gives::<Replayed>(202, "Its work is done again.")
        .fails(&[409]),
        Route::new(
            Method::POST,
            "/v1/dead-letters/{id}/discard",
            ADMIN,
            [GROUP, "discardDeadLetter", "Put it aside"],
            discard,
        )
        .about("It stays on record.")
        .part("id", ID, "The dead letter.")
        .gives::<DeadLetterView>(200, "It was put aside.")
        .fails(&[409]),
    ]
}

/// A dead letter of any kind.
enum Found {
    Task(DeadLetter),
    Script(Box<ScriptLetter>),
    Event(Box<DeliveryLetter>),
}

fn message_of(text: &str) -> Option<MessageId> {
    let is_hex = text.len() == 32 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    u128::from_str_radix(text, 16).ok().filter(|_| is_hex).map(MessageId)
}

/// An execution's id as it is written, and in no other form.
fn execution_of(text: &str) -> Option<ExecutionId> {
    ExecutionId::new(text).ok().filter(|id| id.to_string() == text)
}

/// The same for a delivery.
fn delivery_of(text: &str) -> Option<DeliveryId> {
    EventId::new(text).ok().filter(|id| id.to_string() == text).map(DeliveryId)
}

async fn find(call: &Call) -> Result<Found, Problem> {
    let (given, tenant) = (call.inputs.part("id"), call.tenant()?);
    let absent = || Problem::not_found("dead letter", given);
    if let Some(id) = execution_of(given)
        && let Some(letter) = call.app.engine().script_letter(&tenant, id).await?
    {
        return Ok(Found::Script(Box::new(letter)));
    }
    if let Some(id) = delivery_of(given) {
        let letter = call.app.engine().delivery_letter(&tenant, id).await?.ok_or_else(absent)?;
        return Ok(Found::Event(Box::new(letter)));
    }
    let key = RecordKey::dead_letter(&tenant, message_of(given).ok_or_else(absent)?);
    let record = call.app.engine().backend().record(key).await?.ok_or_else(absent)?;
    match record.value {
        RecordValue::DeadLetter(letter) => Ok(Found::Task(letter)),
        _ => Err(absent()),
    }
}

/// A letter with all that is known of it: an event that is too large for it is looked up.
async fn shown(call: &Call, found: Found) -> Result<DeadLetterView, Problem> {
    let mut letter = match found {
        Found::Task(letter) => return Ok(DeadLetterView::Task(TaskLetterView::of(&letter))),
        Found::Script(letter) => letter,
        Found::Event(letter) => {
            let view = DeliveryLetterView::of((&call.tenant()?, *letter));
            return Ok(DeadLetterView::Event(Box::new(view)));
        }
    };
    let tenant = call.tenant()?;
    if letter.event.data.is_none() {
        let event =
            call.app.engine().find_event(&tenant, letter.event.id, Some(letter.event.timestamp)).await?;
        letter.event.data = event.map(|found| found.event.properties);
    }
    Ok(DeadLetterView::Script(Box::new(ScriptLetterView::of((&tenant, *letter)))))
}

async fn list(call: Call) -> Reply {
    let inputs = &call.inputs;
    let state = inputs.text("state").map(|state| match state {
        "open" => DeadLetterState::Open,
        "replayed" => DeadLetterState::Replayed,
        _ => DeadLetterState::Discarded,
    });
    if inputs.text("kind") == Some("script") {
        return list_scripts(&call, state).await;
    }
    if inputs.text("scriptId").is_some() {
        return Err(Problem::invalid_parameter("scriptId", "is for kind=script"));
    }
    if inputs.text("kind") == Some("event") {
        return list_events(&call, state).await;
    }
    for name in ["eventType", "from", "to"] {
        if inputs.text(name).is_some() {
            return Err(Problem::invalid_parameter(name, "is for kind=script and kind=event"));
        }
    }
    let after = match inputs.text("cursor") {
        Some(cursor) => {
            Some(message_of(list_cursor::read("letter", cursor)?).ok_or_else(list_cursor::refuse)?)
        }
        None => None,
    };
    let page = call.app.engine().dead_letters(call.tenant()?, state, after, page_size(inputs)).await?;
    let next_cursor = page.next.map(|next| list_cursor::write("letter", &format!("{:032x}", next.0)));
    let items = page.letters.iter().map(|letter| DeadLetterView::Task(TaskLetterView::of(letter)));
    json(StatusCode::OK, &Page { items: items.collect(), next_cursor })
}

async fn list_scripts(call: &Call, state: Option<DeadLetterState>) -> Reply {
    let (inputs, tenant) = (&call.inputs, call.tenant()?);
    let after = match inputs.text("cursor") {
        Some(cursor) => {
            let place = list_cursor::read("script-letter", cursor)?;
            Some(execution_of(place).ok_or_else(list_cursor::refuse)?)
        }
        None => None,
    };
    let filter = LetterFilter {
        script: inputs.text("scriptId").map(ScriptId::trusted),
        event_type: inputs.text("eventType").map(EventType::trusted),
        from: inputs.number("from").map(Timestamp::clamped),
        until: inputs.number("to").map(after_moment),
        state,
    };
    let page = call.app.engine().script_letters(&tenant, &filter, after, page_size(inputs)).await?;
    let next_cursor = page.next.map(|next| list_cursor::write("script-letter", &next.to_string()));
    let shown = |letter| DeadLetterView::Script(Box::new(ScriptLetterView::of((&tenant, letter))));
    json(StatusCode::OK, &Page { items: page.letters.into_iter().map(shown).collect(), next_cursor })
}

async fn list_events(call: &Call, state: Option<DeadLetterState>) -> Reply {
    let (inputs, tenant) = (&call.inputs, call.tenant()?);
    let after = match inputs.text("cursor") {
        Some(cursor) => {
            let place = list_cursor::read("event-letter", cursor)?;
            Some(delivery_of(place).ok_or_else(list_cursor::refuse)?)
        }
        None => None,
    };
    let filter = DeliveryFilter {
        event_type: inputs.text("eventType").map(EventType::trusted),
        from: inputs.number("from").map(Timestamp::clamped),
        until: inputs.number("to").map(after_moment),
        state,
    };
    let page = call.app.engine().delivery_letters(&tenant, &filter, after, page_size(inputs)).await?;
    let next_cursor = page.next.map(|next| list_cursor::write("event-letter", &next.to_string()));
    let shown = |letter| DeadLetterView::Event(Box::new(DeliveryLetterView::of((&tenant, letter))));
    json(StatusCode::OK, &Page { items: page.letters.into_iter().map(shown).collect(), next_cursor })
}

/// The first moment after this one: callers name the last that they want.
fn after_moment(millis: u64) -> Timestamp {
    Timestamp::clamped(millis.saturating_add(1))
}

async fn get(call: Call) -> Reply {
    let found = find(&call).await?;
    json(StatusCode::OK, &shown(&call, found).await?)
}

async fn replay(call: Call) -> Reply {
    let id = call.inputs.part("id").to_owned();
    let (engine, tenant) = (call.app.engine(), call.tenant()?);
    let replayed = Replayed { id, request_id: None, execution_id: None, delivery_id: None };
    let replayed = match find(&call).await? {
        Found::Task(letter) => {
            let request = engine.replay(tenant, letter.message).await?;
            Replayed { request_id: Some(request.to_string()), ..replayed }
        }
        Found::Script(letter) => {
            let execution = engine.replay_letter(tenant, letter.id).await?;
            Replayed { execution_id: Some(execution.to_string()), ..replayed }
        }
        Found::Event(letter) => {
            let delivery = engine.replay_delivery(tenant, letter.id).await?;
            Replayed { delivery_id: Some(delivery.to_string()), ..replayed }
        }
    };
    call.app.letters_changed();
    json(StatusCode::ACCEPTED, &replayed)
}

async fn discard(call: Call) -> Reply {
    let (engine, tenant) = (call.app.engine(), call.tenant()?);
    match find(&call).await? {
        Found::Task(letter) => engine.discard(tenant, letter.message).await?,
        Found::Script(letter) => engine.discard_letter(tenant, letter.id).await?,
        Found::Event(letter) => engine.discard_delivery(tenant, letter.id).await?,
    }
    call.app.letters_changed();
    get(call).await
}

/// What to do with many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Replay,
    Discard,
}

async fn replay_many(call: Call) -> Reply {
    let done = many(&call, Deed::Replay).await;
    call.app.letters_changed();
    json(StatusCode::ACCEPTED, &done?)
}

async fn discard_many(call: Call) -> Reply {
    let done = many(&call, Deed::Discard).await;
    call.app.letters_changed();
    json(StatusCode::OK, &done?)
}

async fn many(call: &Call, deed: Deed) -> Result<ManyLettersView, Problem> {
    let filter: LettersFilter = json_body::read(&call.body)?;
    let tenant = call.tenant()?;
    let is_timed = filter.event_type.is_some() || filter.from.is_some() || filter.to.is_some();
    if filter.kind == LetterKind::Script {
        let is_narrow = filter.script_id.is_some() || is_timed;
        all_or_some(filter.all, is_narrow, "scriptId, eventType, from or to")?;
        return many_scripts(call, &tenant, filter, deed).await;
    }
    if filter.script_id.is_some() {
        return Err(Problem::invalid_field("scriptId", "is for the kind script"));
    }
    if filter.kind == LetterKind::Event {
        all_or_some(filter.all, is_timed, "eventType, from or to")?;
        return many_events(call, &tenant, filter, deed).await;
    }
    for (name, is_given) in [
        ("eventType", filter.event_type.is_some()),
        ("from", filter.from.is_some()),
        ("to", filter.to.is_some()),
    ] {
        if is_given {
            return Err(Problem::invalid_field(name, "is for the kinds script and event"));
        }
    }
    all_or_some(filter.all, false, "the id of one in the path")?;
    let engine = call.app.engine();
    let open = Some(DeadLetterState::Open);
    let page = engine.dead_letters(tenant.clone(), open, None, MANY_MAX).await?;
    let mut ids = Vec::new();
    for letter in &page.letters {
        if filter.dry_run {
            ids.push(format!("{:032x}", letter.message.0));
            continue;
        }
        let done = match deed {
            Deed::Replay => engine.replay(tenant.clone(), letter.message).await.map(drop),
            Deed::Discard => engine.discard(tenant.clone(), letter.message).await,
        };
        match done {
            Ok(()) => ids.push(format!("{:032x}", letter.message.0)),
            // Somebody else was faster.
            Err(EngineError::Refused(Refusal::NotOpen(_))) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(ManyLettersView { ids, more: page.next.is_some() })
}

fn until_of(filter: &LettersFilter) -> Option<Timestamp> {
    filter.to.map(|to| after_moment(to.millis()))
}

fn changed(letters: &[impl ToString], more: bool) -> ManyLettersView {
    ManyLettersView { ids: letters.iter().map(ToString::to_string).collect(), more }
}

async fn many_events(
    call: &Call,
    tenant: &TenantId,
    filter: LettersFilter,
    deed: Deed,
) -> Result<ManyLettersView, Problem> {
    let (is_dry, until) = (filter.dry_run, until_of(&filter));
    let filter = DeliveryFilter { event_type: filter.event_type, from: filter.from, until, state: None };
    let engine = call.app.engine();
    let ManyDeliveries { letters, more } = match deed {
        _ if is_dry => engine.deliveries_to_change(tenant, &filter).await?,
        Deed::Replay => engine.replay_deliveries(tenant, &filter).await?,
        Deed::Discard => engine.discard_deliveries(tenant, &filter).await?,
    };
    Ok(changed(&letters, more))
}

async fn many_scripts(
    call: &Call,
    tenant: &TenantId,
    filter: LettersFilter,
    deed: Deed,
) -> Result<ManyLettersView, Problem> {
    let (is_dry, until) = (filter.dry_run, until_of(&filter));
    let LettersFilter { script_id: script, event_type, from, .. } = filter;
    let filter = LetterFilter { script, event_type, from, until, state: None };
    let engine = call.app.engine();
    let ManyLetters { letters, more } = match deed {
        _ if is_dry => engine.letters_to_change(tenant, &filter).await?,
        Deed::Replay => engine.replay_letters(tenant, &filter).await?,
        Deed::Discard => engine.discard_letters(tenant, &filter).await?,
    };
    Ok(changed(&letters, more))
}
