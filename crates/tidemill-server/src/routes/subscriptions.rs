//! Subscriptions: which events a script is to run for.

use axum::http::{Method, StatusCode};
use axum::response::Response;
use serde_json::Value;
use tidemill_engine::engine::SubscriptionFilter;
use tidemill_matcher::{Subscription, SubscriptionDraft};
use tidemill_model::{EventType, ScriptId, SubscriptionId, TenantId};

use super::scripts;
use crate::api::Page;
use crate::problem::Problem;
use crate::request::param::Kind;
use crate::request::{json_body, list_cursor};
use crate::route::{ADMIN, Call, READ, Reply, Route, json, page_size};

const GROUP: &str = "Subscriptions";
const ID: Kind = Kind::Word { most: SubscriptionId::LENGTH_MAX };

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(
            Method::POST,
            "/v1/subscriptions",
            ADMIN,
            [GROUP, "createSubscription", "Subscribe a script to events"],
            create,
        )
        .about("It sees events that come after it. Without an `id` one is minted.")
        .reads::<SubscriptionDraft>()
        .gives::<Subscription>(201, "It was made.")
        .fails(&[409]),
        Route::new(
            Method::GET,
            "/v1/subscriptions",
            READ,
            [GROUP, "listSubscriptions", "List subscriptions"],
            list,
        )
        .query("scriptId", scripts::ID, "Only those of this script.")
        .query("eventType", Kind::Text { most: EventType::LENGTH_MAX }, "Only those of this type.")
        .query("enabled", Kind::Flag, "Only those that are enabled, or only those that are not.")
        .paged()
        .gives::<Page<Subscription>>(200, "A page of subscriptions, by id."),
        Route::new(
            Method::GET,
            "/v1/subscriptions/{id}",
            READ,
            [GROUP, "getSubscription", "Look at a subscription"],
            get,
        )
        .part("id", ID, "The subscription.")
        .gives::<Subscription>(200, "The subscription."),
        Route::new(
            Method::PUT,
            "/v1/subscriptions/{id}",
            ADMIN,
            [GROUP, "replaceSubscription", "Replace a subscription"],
            replace,
        )
        .about("What was matched before runs all the same.")
        .part("id", ID, "The subscription.")
        .reads::<SubscriptionDraft>()
        .gives::<Subscription>(200, "It was replaced."),
        Route::new(
            Method::POST,
            "/v1/subscriptions/{id}/enable",
            ADMIN,
            [GROUP, "enableSubscription", "Enable a subscription"],
            enable,
        )
        .about("It sees events that come from now on. Repeating it changes nothing.")
        .part("id", ID, "The subscription.")
        .gives::<Subscription>(200, "It is enabled."),
        Route::new(
            Method::POST,
            "/v1/subscriptions/{id}/disable",
            ADMIN,
            [GROUP, "disableSubscription", "Disable a subscription"],
            disable,
        )
        .about("What was matched before runs all the same. Repeating it changes nothing.")
        .part("id", ID, "The subscription.")
        .gives::<Subscription>(200, "It is disabled."),
        Route::new(
            Method::DELETE,
            "/v1/subscriptions/{id}",
            ADMIN,
            [GROUP, "deleteSubscription", "Remove a subscription"],
            remove,
        )
        .part("id", ID, "The subscription.")
        .gives_nothing(204, "It was removed."),
    ]
}

fn id_of(call: &Call) -> Result<(TenantId, SubscriptionId), Problem> {
    let given = call.inputs.part("id");
    let id = SubscriptionId::new(given).map_err(|_| Problem::not_found("subscription", given))?;
    Ok((call.tenant()?, id))
}

async fn create(call: Call) -> Reply {
    let draft = SubscriptionDraft::read(json_body::value(&call.body)?)?;
    let made = call.app.engine().subscribe(&call.tenant()?, draft).await?;
    json(StatusCode::CREATED, &made)
}

async fn list(call: Call) -> Reply {
    let inputs = &call.inputs;
    let after = match inputs.text("cursor") {
        Some(cursor) => {
            let place = list_cursor::read("subscription", cursor)?;
            Some(SubscriptionId::new(place).map_err(|_| list_cursor::refuse())?)
        }
        None => None,
    };
    let filter = SubscriptionFilter {
        script: inputs.text("scriptId").map(ScriptId::trusted),
        event_type: inputs.text("eventType").map(EventType::trusted),
        enabled: inputs.text("enabled").map(|text| text == "true"),
    };
    let limit = page_size(inputs);
    let mut items =
        call.app.engine().subscriptions(&call.tenant()?, &filter, after.as_ref(), limit + 1).await?;
    let more = items.len() > limit;
    items.truncate(limit);
    let last = items.last().filter(|_| more);
    let next_cursor = last.map(|last| list_cursor::write("subscription", last.id.as_str()));
    json(StatusCode::OK, &Page { items, next_cursor })
}

async fn get(call: Call) -> Reply {
    let (tenant, id) = id_of(&call)?;
    match call.app.engine().subscription(&tenant, &id).await? {
        Some(subscription) => json(StatusCode::OK, &subscription),
        None => Err(Problem::not_found("subscription", id.as_str())),
    }
}

async fn replace(call: Call) -> Reply {
    let (tenant, id) = id_of(&call)?;
    let mut value = json_body::value(&call.body)?;
    // The path says it already; a body may repeat it.
    if let Value::Object(fields) = &mut value {
        let given = fields.entry("id").or_insert_with(|| id.as_str().into());
        if given.as_str() != Some(id.as_str()) {
            return Err(Problem::invalid_field("id", "is not the id in the path"));
        }
    }
    let draft = SubscriptionDraft::read(value)?;
    // One that is not there is refused before anything in the body is looked at.
    if call.app.engine().subscription(&tenant, &id).await?.is_none() {
        return Err(Problem::not_found("subscription", id.as_str()));
    }
    json(StatusCode::OK, &call.app.engine().resubscribe(&tenant, &id, &draft).await?)
}

async fn enable(call: Call) -> Reply {
    set_enabled(&call, true).await
}

async fn disable(call: Call) -> Reply {
    set_enabled(&call, false).await
}

async fn set_enabled(call: &Call, enabled: bool) -> Reply {
    let (tenant, id) = id_of(call)?;
    json(StatusCode::OK, &call.app.engine().enable_subscription(&tenant, &id, enabled).await?)
}

async fn remove(call: Call) -> Reply {
    let (tenant, id) = id_of(&call)?;
    call.app.engine().unsubscribe(&tenant, &id).await?;
    let mut response = Response::default();
    *response.status_mut() = StatusCode::NO_CONTENT;
    Ok(response)
}
