//! The raw queue: messages by hand, for users with their own workers.

use std::sync::Arc;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use axum::response::Response;
use tidemill_engine::commit::{MessageId, Receipt};
use tidemill_engine::engine::{DeliveredMessage, EngineError, NewMessage};
use tidemill_engine::reply::Refusal;
use tidemill_model::{AppName, Json, RequestId, TaskName};
use tokio::time::Instant;

use crate::admission::caller::Welcome;
use crate::api::{
    QueueView, ReceiveRequest, ReceivedMessage, ReceivedMessages, SendAttributes, SendRequest, Sent,
    VisibilityRequest,
};
use crate::problem::Problem;
use crate::request::json_body;
use crate::request::param::Kind;
use crate::route::{ADMIN, Call, Reply, Route, json};

const GROUP: &str = "Queue";
/// Messages of one receive.
const MESSAGES_MAX: u32 = 64;
/// The longest wait of a receive, in milliseconds.
pub(super) const WAIT_MILLIS_MAX: u64 = 30_000;

const RECEIPT: Kind = Kind::Word { most: 64 };

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::GET,
            "/v1/queues/tasks",
            ADMIN,
            [GROUP, "getQueue", "See how full the queue is"],
            get,
        )
        .gives::<QueueView>(200, "The queue."),
        Route::new(
            Method::POST,
            "/v1/queues/tasks/messages",
            ADMIN,
            [GROUP, "sendMessage", "Send a message"],
            send,
        )
        .about("For a task that is known it is another delivery; else a task begins with it, unannounced.")
        .reads::<SendRequest>()
        .reads_much()
        .gives::<Sent>(202, "It is in the queue.")
        .fails(&[404, 409]),
        Route::new(
            Method::POST,
            "/v1/queues/tasks/messages/receive",
            ADMIN,
            [GROUP, "receiveMessages", "Receive messages"],
            receive,
        )
        .about("They are hidden for a while and come again unless they are deleted.")
        .may_read::<ReceiveRequest>()
        .reads_little()
        .gives::<ReceivedMessages>(200, "Messages; none when nothing came in time."),
        Route::new(
            Method::DELETE,
            "/v1/queues/tasks/messages/{receipt}",
            ADMIN,
            [GROUP, "deleteMessage", "Delete a message"],
            delete,
        )
        .about("The receipt of an older delivery deletes nothing.")
        .part("receipt", RECEIPT, "Of the newest delivery.")
        .gives_nothing(204, "It is gone."),
        Route::new(
            Method::POST,
            "/v1/queues/tasks/messages/{receipt}/visibility",
            ADMIN,
            [GROUP, "changeVisibility", "Hide or show a message"],
            visibility,
        )
        .part("receipt", RECEIPT, "Of the newest delivery.")
        .reads::<VisibilityRequest>()
        .reads_little()
        .gives_nothing(204, "It is done."),
    ]
}

fn write_receipt(receipt: Receipt) -> String {
    format!("{:032x}-{}", receipt.message.0, receipt.delivery)
}

fn read_receipt(call: &Call) -> Result<Receipt, Problem> {
    let given = call.inputs.part("receipt");
    let parts =
        given.split_once('-').filter(|(message, _)| message.len() == 32).and_then(|(message, delivery)| {
            let message = MessageId(u128::from_str_radix(message, 16).ok()?);
            Some(Receipt { message, delivery: delivery.parse().ok()? })
        });
    parts.ok_or_else(|| no_receipt(given))
}

fn no_receipt(given: &str) -> Problem {
    Problem::not_found("receipt", given)
}

async fn get(call: Call) -> Reply {
    let engine = call.app.engine();
    let depth = engine.queue_depth().await?;
    let policy = engine.policy();
    json(
        StatusCode::OK,
        &QueueView {
            messages: depth.messages as u64,
            ready: depth.ready as u64,
            visibility_ms: policy.visibility_millis,
            max_receive_count: policy.receives_max,
        },
    )
}

async fn send(call: Call) -> Reply {
    let SendRequest { body, attributes, delay_ms } = json_body::read(&call.body)?;
    let SendAttributes { request_id, tenant_id, app_name } = attributes.unwrap_or_default();
    let tenant = call.tenant()?;
    if tenant_id.is_some_and(|given| given != tenant.as_str()) {
        return Err(Problem::invalid_field("attributes.tenantId", "is not the tenant of your key"));
    }
    let bad =
        |field: &str, error: &tidemill_model::BadId| Problem::invalid_field(field, error.problem.to_string());
    let request =
        request_id.map(RequestId::new).transpose().map_err(|error| bad("attributes.requestId", &error))?;
    let app = app_name.map(AppName::new).transpose().map_err(|error| bad("attributes.appName", &error))?;
    let name = TaskName::new(&body.name).map_err(|error| bad("body.name", &error))?;
    let send = NewMessage {
        tenant,
        app: app.unwrap_or_else(|| call.app.config().app.clone()),
        request,
        name,
        input: body.input.unwrap_or_else(Json::empty_object),
        run: body.run.unwrap_or(1),
        delay_millis: delay_ms.unwrap_or(0),
    };
    let message = call.app.engine().send(send).await?;
    json(StatusCode::ACCEPTED, &Sent { message_id: format!("{:032x}", message.0) })
}

async fn receive(mut call: Call) -> Reply {
    let request: ReceiveRequest = json_body::read_or_default(&call.body)?;
    call.forget_body();
    let max = request.max.unwrap_or(1);
    if !(1..=MESSAGES_MAX).contains(&max) {
        return Err(Problem::invalid_field("max", format!("is {max}; it must be from 1 to {MESSAGES_MAX}")));
    }
    let wait = wait_of(request.wait_ms)?;
    let engine = call.app.engine();
    let tenants: Arc<[_]> = Arc::from([call.tenant()?]);
    let deadline = Instant::now() + wait;
    let mut closing = call.app.closing();
    let mut welcome = Welcome::of(&call.app, &call.caller);
    let max = usize::try_from(max).unwrap_or(1);
    loop {
        if call.peer.is_gone() {
            return json(StatusCode::OK, &ReceivedMessages { messages: Vec::new() });
        }
        if !welcome.holds().await {
            return Err(Problem::unauthenticated("the API key is unknown or was revoked"));
        }
        let received = engine.receive(Some(Arc::clone(&tenants)), max, request.visibility_ms).await?;
        if !received.messages.is_empty() || Instant::now() >= deadline || closing.has_begun() {
            let mut messages = Vec::with_capacity(received.messages.len());
            for delivery in received.messages {
                messages.extend(message_of(&call, delivery).await?);
            }
            return json(StatusCode::OK, &ReceivedMessages { messages });
        }
        tokio::select! {
            () = engine.work_arrived(Some(Arc::clone(&tenants))) => {}
            () = welcome.ended() => {}
            () = tokio::time::sleep_until(deadline) => {}
            () = closing.begun() => {}
            () = call.peer.gone() => {}
        }
    }
}

/// How long a call may wait.
pub(super) fn wait_of(wait_ms: Option<u64>) -> Result<Duration, Problem> {
    let wait = wait_ms.unwrap_or(0);
    if wait > WAIT_MILLIS_MAX {
        return Err(Problem::invalid_field("waitMs", format!("is {wait}; the limit is {WAIT_MILLIS_MAX}")));
    }
    Ok(Duration::from_millis(wait))
}

/// A delivery as its receiver sees it; `None` when its task is gone.
async fn message_of(call: &Call, delivery: DeliveredMessage) -> Result<Option<ReceivedMessage>, Problem> {
    let engine = call.app.engine();
    let task = &delivery.message.task;
    let body = match engine.message_body(task).await {
        Ok(body) => body,
        Err(EngineError::Refused(Refusal::NotFound { .. })) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let app = engine.task(task.clone()).await?.map(|snapshot| snapshot.app.to_string());
    Ok(Some(ReceivedMessage {
        message_id: format!("{:032x}", delivery.message.id.0),
        receipt: write_receipt(delivery.receipt),
        deliveries: delivery.deliveries,
        attributes: SendAttributes {
            request_id: Some(task.request.to_string()),
            tenant_id: Some(task.tenant.to_string()),
            app_name: app,
        },
        body,
    }))
}

fn done(existed: bool, given: &str) -> Reply {
    if !existed {
        return Err(no_receipt(given));
    }
    let mut response = Response::default();
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}

async fn delete(call: Call) -> Reply {
    let receipt = read_receipt(&call)?;
    let existed = call.app.engine().delete(Some(call.tenant()?), receipt).await?;
    done(existed, call.inputs.part("receipt"))
}

async fn visibility(call: Call) -> Reply {
    let receipt = read_receipt(&call)?;
    let request: VisibilityRequest = json_body::read(&call.body)?;
    let tenant = Some(call.tenant()?);
    let existed = call.app.engine().change_visibility(tenant, receipt, request.visible_in_ms).await?;
    done(existed, call.inputs.part("receipt"))
}
