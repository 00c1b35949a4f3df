//! API keys: which callers may call.

use axum::http::{Method, StatusCode};
use tidemill_model::{ApiKeyRecord, KeyId, TenantId, Timestamp};

use crate::admission::caller::Caller;
use crate::api::{AwsCredentials, KeyCreated, KeyRequest, KeyView, Page};
use crate::problem::Problem;
use crate::request::param::Kind;
use crate::request::{json_body, list_cursor};
use crate::route::{ADMIN, Call, Reply, Route, json, page_size};

const GROUP: &str = "Keys";
/// Keys that are read at a time.
const KEYS_READ: usize = 200;
/// Keys that one page looks at, or one search for a key.
const KEYS_LOOKED_AT_MAX: usize = 20_000;

pub(super) fn routes() -> Vec<Route> {
    vec![
        Route::new(Method::POST, "/v1/keys", ADMIN, [GROUP, "createKey", "Create a key"], create)
            .about(
                "The token is shown this once. The first key ends keyless mode at once, so let it be an admin's. \
                 An admin makes keys for its own tenant.",
            )
            .reads::<KeyRequest>()
            .gives::<KeyCreated>(201, "The key."),
        Route::new(Method::GET, "/v1/keys", ADMIN, [GROUP, "listKeys", "List keys"], list)
            .paged()
            .gives::<Page<KeyView>>(200, "A page of keys, revoked ones included, without their secrets."),
        Route::new(Method::DELETE, "/v1/keys/{id}", ADMIN, [GROUP, "revokeKey", "Revoke a key"], revoke)
            .about("At once and for good. Repeating it changes nothing.")
            .part("id", Kind::Word { most: 12 }, "The key's id.")
            .gives::<KeyView>(200, "The key, out of force."),
    ]
}

fn view(key: &ApiKeyRecord) -> KeyView {
    KeyView {
        id: key.id.to_string(),
        role: key.role,
        tenants: key.tenants.iter().map(ToString::to_string).collect(),
        label: key.label.clone(),
        created_at: key.created_at.millis(),
        revoked_at: key.revoked_at.map(Timestamp::millis),
    }
}

/// Whether the caller may know of a key: all of its tenants are the caller's own.
fn may_see(caller: &Caller, key: &ApiKeyRecord) -> bool {
    caller.is_operator() || key.tenants.iter().all(|tenant| caller.tenants().contains(tenant))
}

async fn create(call: Call) -> Reply {
    let request: KeyRequest = json_body::read(&call.body)?;
    let mut tenants = Vec::new();
    for (at, text) in request.tenants.iter().flatten().enumerate() {
        let field = format!("tenants[{at}]");
        let tenant = TenantId::new(text);
        let tenant =
            tenant.map_err(|error| Problem::invalid_field(field.clone(), error.problem.to_string()))?;
        if !call.caller.is_operator() && !call.caller.tenants().contains(&tenant) {
            let detail = format!(
                "{field} is not the tenant of your key; keys of another tenant are made on the data directory while the \
                 server is stopped: tidemill keys create --tenant {tenant} --data DIR"
            );
            return Err(Problem::forbidden("FOREIGN_TENANT", detail));
        }
        if tenants.contains(&tenant) {
            return Err(Problem::invalid_field(field, "is there twice"));
        }
        tenants.push(tenant);
    }
    if request.tenants.is_none() {
        tenants.push(call.tenant()?);
    }
    let engine = call.app.engine();
    let (key, token) = if request.aws {
        engine.create_signing_key(tenants, request.role, request.label).await?
    } else {
        engine.create_key(tenants, request.role, request.label).await?
    };
    call.app.keys_changed();
    let aws = request.aws.then(|| AwsCredentials {
        access_key_id: token.id().to_string(),
        secret_access_key: token.secret().to_owned(),
    });
    json(StatusCode::CREATED, &KeyCreated { key: view(&key), token: token.reveal(), aws })
}

async fn list(call: Call) -> Reply {
    let mut after = match call.inputs.text("cursor") {
        Some(cursor) => {
            Some(KeyId::new(list_cursor::read("key", cursor)?).map_err(|_| list_cursor::refuse())?)
        }
        None => None,
    };
    let limit = page_size(&call.inputs);
    let (mut items, mut looked_at, mut more) = (Vec::new(), 0, true);
    while more && items.len() < limit && looked_at < KEYS_LOOKED_AT_MAX {
        let keys = call.app.engine().keys(after.as_ref(), KEYS_READ).await?;
        more = keys.len() == KEYS_READ;
        looked_at += keys.len();
        for key in keys {
            if items.len() == limit {
                more = true;
                break;
            }
            if may_see(&call.caller, &key) {
                items.push(view(&key));
            }
            after = Some(key.id);
        }
    }
    let next_cursor = after.filter(|_| more).map(|id| list_cursor::write("key", id.as_str()));
    json(StatusCode::OK, &Page { items, next_cursor })
}

async fn revoke(call: Call) -> Reply {
    let given = call.inputs.part("id");
    let absent = || Problem::not_found("key", given);
    let id = KeyId::new(given).map_err(|_| absent())?;
    if !call.caller.is_operator() {
        // A key of another tenant must look as if it were not there.
        let (mut after, mut found) = (None, None);
        while found.is_none() {
            let keys = call.app.engine().keys(after.as_ref(), KEYS_READ).await?;
            let Some(last) = keys.last() else { break };
            after = Some(last.id.clone());
            found = keys.into_iter().find(|key| key.id == id);
        }
        if !found.is_some_and(|key| may_see(&call.caller, &key)) {
            return Err(absent());
        }
    }
    let revoked = call.app.engine().revoke_key(&id).await?;
    call.app.keys_changed();
    json(StatusCode::OK, &view(&revoked))
}
