//! Dead letters: list, look, replay, discard. None is ever deleted.

use axum::http::{Method, StatusCode};
use tidemill_engine::backend::Backend;
use tidemill_engine::commit::MessageId;
use tidemill_engine::record::{DeadLetter, DeadLetterState, RecordKey, RecordValue};

use crate::api::{DeadLetterView, Page, Replayed};
use crate::list_cursor;
use crate::param::Kind;
use crate::problem::Problem;
use crate::route::{ADMIN, Call, READ, Reply, Route, json, page_size};

const GROUP: &str = "Dead letters";

pub(super) fn routes<B: Backend>() -> Vec<Route<B>> {
    vec![
        Route::new(
            Method::GET,
            "/v1/dead-letters",
            READ,
            [GROUP, "listDeadLetters", "List dead letters, oldest first"],
            list::<B>,
        )
        .query("state", Kind::Choice(&["open", "replayed", "discarded"]), "Only those in this state.")
        .paged()
        .gives::<Page<DeadLetterView>>(200, "A page of dead letters."),
        Route::new(
            Method::GET,
            "/v1/dead-letters/{id}",
            READ,
            [GROUP, "getDeadLetter", "Look at a dead letter"],
            get::<B>,
        )
        .part("id", Kind::Hex, "The dead letter.")
        .gives::<DeadLetterView>(200, "The dead letter."),
        Route::new(
            Method::POST,
            "/v1/dead-letters/{id}/replay",
            ADMIN,
            [GROUP, "replayDeadLetter", "Run its task again"],
            replay::<B>,
        )
        .part("id", Kind::Hex, "The dead letter.")
        .gives::<Replayed>(202, "The task runs again.")
        .fails(&[409, 415]),
        Route::new(
            Method::POST,
            "/v1/dead-letters/{id}/discard",
            ADMIN,
            [GROUP, "discardDeadLetter", "Put it aside"],
            discard::<B>,
        )
        .about("It stays on record.")
        .part("id", Kind::Hex, "The dead letter.")
        .gives::<DeadLetterView>(200, "It was put aside.")
        .fails(&[409, 415]),
    ]
}

fn id_of(text: &str) -> Option<MessageId> {
    u128::from_str_radix(text, 16).ok().map(MessageId)
}

async fn find<B: Backend>(call: &Call<B>) -> Result<DeadLetter, Problem> {
    let given = call.inputs.part("id");
    let absent = || Problem::not_found("dead letter", given);
    let key = RecordKey::dead_letter(&call.tenant()?, id_of(given).ok_or_else(absent)?);
    let record = call.app.engine().backend().record(key).await?.ok_or_else(absent)?;
    match record.value {
        RecordValue::DeadLetter(letter) => Ok(letter),
        _ => Err(absent()),
    }
}

async fn list<B: Backend>(call: Call<B>) -> Reply {
    let state = call.inputs.text("state").map(|state| match state {
        "open" => DeadLetterState::Open,
        "replayed" => DeadLetterState::Replayed,
        _ => DeadLetterState::Discarded,
    });
    let after = match call.inputs.text("cursor") {
        Some(cursor) => Some(id_of(list_cursor::read("letter", cursor)?).ok_or_else(list_cursor::refuse)?),
        None => None,
    };
    let page = call.app.engine().dead_letters(call.tenant()?, state, after, page_size(&call.inputs)).await?;
    let next_cursor = page.next.map(|next| list_cursor::write("letter", &format!("{:032x}", next.0)));
    json(
        StatusCode::OK,
        &Page { items: page.letters.iter().map(DeadLetterView::from).collect(), next_cursor },
    )
}

async fn get<B: Backend>(call: Call<B>) -> Reply {
    json(StatusCode::OK, &DeadLetterView::from(&find(&call).await?))
}

async fn replay<B: Backend>(call: Call<B>) -> Reply {
    let letter = find(&call).await?;
    let request = call.app.engine().replay(call.tenant()?, letter.message).await?;
    let id = call.inputs.part("id").to_owned();
    json(StatusCode::ACCEPTED, &Replayed { id, request_id: request.to_string() })
}

async fn discard<B: Backend>(call: Call<B>) -> Reply {
    let letter = find(&call).await?;
    call.app.engine().discard(call.tenant()?, letter.message).await?;
    json(StatusCode::OK, &DeadLetterView::from(&find(&call).await?))
}
