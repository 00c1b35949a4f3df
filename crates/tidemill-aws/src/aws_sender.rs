//! Deliveries that go to services of AWS. All others go to another sender.

use std::sync::Arc;
use std::time::Duration;

use aws_sdk_eventbridge::types::PutEventsRequestEntry;
use aws_sdk_sfn::config::http::HttpResponse;
use aws_sdk_sfn::error::{ProvideErrorMetadata, SdkError};
use serde::Deserialize;
use serde_json::value::RawValue;
use tidemill_engine::engine::Engine;
use tidemill_engine::outbound::{DeliveryKey, Parcel, SendError, Sender, Target};

use crate::backend::Aws;
use crate::bus::outbox::Bus;
use crate::events::save_event::save_event;

/// What Step Functions takes of an error's name and of its cause, in characters.
const ERROR_CHARS_MAX: usize = 256;
const CAUSE_CHARS_MAX: usize = 32_768;
/// What the error of a try says that may have arrived.
const NO_ANSWER: &str = "no answer";

/// Puts letters of the bus on the bus, and tells Step Functions how waits ended.
pub struct AwsSender<S> {
    engine: Engine<Aws>,
    other: S,
}

/// An event as the bus has it.
#[derive(Deserialize)]
struct Envelope<'a> {
    source: String,
    #[serde(rename = "detail-type")]
    detail_type: String,
    #[serde(borrow)]
    detail: &'a RawValue,
}

/// How a wait ended.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Ended<'a> {
    outcome: String,
    #[serde(borrow, default)]
    output: Option<&'a RawValue>,
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    cause: Option<String>,
    token_digest: Arc<str>,
}

impl<S: Sender> AwsSender<S> {
    /// `other` takes webhooks, callbacks and alerts.
    pub fn new(engine: Engine<Aws>, other: S) -> Self {
        Self { engine, other }
    }

    async fn put_on_bus(&self, parcel: &Parcel) -> Result<(), SendError> {
        let event: Envelope<'_> = parcel.body.read().map_err(|error| failed("the letter", &error))?;
        let backend = self.engine.backend();
        let Bus::Named(bus) = &backend.outbox.bus else {
            let (table, now) = (&*backend.table, backend.now());
            let saved = save_event(&backend.connection, table, event.detail.get(), now).await;
            return saved.map(drop).map_err(|fault| SendError(fault.to_string()));
        };
        let entry = PutEventsRequestEntry::builder()
            .event_bus_name(bus)
            .source(event.source)
            .detail_type(event.detail_type)
            .detail(event.detail.get())
            .build();
        let put = backend.connection.bus.put_events().entries(entry).send().await;
        let put = put.map_err(|error| failed("PutEvents", &error.into_service_error()))?;
        let refused = put.entries.unwrap_or_default().into_iter().find_map(|entry| entry.error_code);
        refused.map_or(Ok(()), |code| Err(SendError(format!("the bus refused it: {code}"))))
    }

    /// A token is good for one answer. That Step Functions does not wait for it any more is a failure, since it may have
    /// given up; unless an earlier try got no answer and so may have been the one that it heard.
    async fn send_to_step_functions(&self, parcel: &Parcel) -> Result<(), SendError> {
        let ended: Ended<'_> = parcel.body.read().map_err(|error| failed("the delivery", &error))?;
        let token = self.engine.token(&parcel.tenant, &ended.token_digest).await;
        let Some(token) = token.map_err(|error| failed("the token", &error))? else {
            return Err(SendError("the token is not kept any more".to_owned()));
        };
        let may_have_heard = self.was_unanswered(parcel).await?;
        let sfn = &self.engine.backend().connection.sfn;
        let (what, refusal) = if ended.outcome == "resumed" {
            let output = ended.output.map_or("{}", RawValue::get);
            let tell = sfn.send_task_success().task_token(token.expose()).output(output);
            ("SendTaskSuccess", tell.send().await.err().map(|error| Refused::by(&error)))
        } else {
            let cut = |text: Option<String>, most: usize| {
                text.map(|text| text.chars().take(most).collect::<String>())
            };
            let tell = sfn
                .send_task_failure()
                .task_token(token.expose())
                .set_error(cut(ended.error, ERROR_CHARS_MAX))
                .set_cause(cut(ended.cause, CAUSE_CHARS_MAX));
            ("SendTaskFailure", tell.send().await.err().map(|error| Refused::by(&error)))
        };
        match refusal {
            None => Ok(()),
            Some(refused) if refused.is_too_late() && may_have_heard => Ok(()),
            Some(refused) => Err(SendError(refused.words(what, may_have_heard))),
        }
    }

    /// Whether an earlier try of the same delivery got no answer. Its error says so.
    async fn was_unanswered(&self, parcel: &Parcel) -> Result<bool, SendError> {
        if parcel.attempt <= 1 {
            return Ok(false);
        }
        let key = DeliveryKey { tenant: parcel.tenant.clone(), id: parcel.id };
        let delivery = self.engine.delivery(&key).await.map_err(|error| failed("the delivery", &error))?;
        let error = delivery.and_then(|delivery| delivery.error);
        Ok(error.is_some_and(|error| error.contains(NO_ANSWER)))
    }
}

/// Why a call failed. The message of the service may repeat the token, so only its code is kept.
struct Refused {
    /// `None`: there was no answer, or none that says what became of the call.
    code: Option<String>,
}

impl Refused {
    fn by<E: ProvideErrorMetadata>(error: &SdkError<E, HttpResponse>) -> Self {
        let is_clear = error.raw_response().is_some_and(|answer| !answer.status().is_server_error());
        let code = error.as_service_error().and_then(ProvideErrorMetadata::code);
        Self { code: code.filter(|_| is_clear).map(str::to_owned) }
    }

    fn is_too_late(&self) -> bool {
        matches!(self.code.as_deref(), Some("TaskDoesNotExist" | "TaskTimedOut"))
    }

    fn words(&self, what: &str, may_have_heard: bool) -> String {
        match self.code.as_deref() {
            Some("TaskDoesNotExist") => {
                "Step Functions does not know the token (TaskDoesNotExist)".to_owned()
            }
            Some("TaskTimedOut") => "Step Functions does not wait any more (TaskTimedOut)".to_owned(),
            None => format!("{what}: {NO_ANSWER}"),
            // Later tries must know.
            Some(code) if may_have_heard => format!("{what}: {code}; an earlier try got {NO_ANSWER}"),
            Some(code) => format!("{what}: {code}"),
        }
    }
}

fn failed(what: &str, error: &dyn std::error::Error) -> SendError {
    SendError(format!("{what}: {error}"))
}

impl<S: Sender> Sender for AwsSender<S> {
    async fn send(&self, parcel: Parcel) -> Result<(), SendError> {
        match parcel.target {
            Target::Bus => self.put_on_bus(&parcel).await,
            Target::TaskToken => self.send_to_step_functions(&parcel).await,
            _ => self.other.send(parcel).await,
        }
    }

    async fn sleep(&self, time: Duration) {
        self.other.sleep(time).await;
    }
}
