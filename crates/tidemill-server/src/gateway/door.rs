//! The door: requests of clients of AWS are told apart before routing, and pass all gates in one order.
//!
//! Key, rate, body, signature, call, role. Only then a service runs. Whatever is wrong is said in the words of the service
//! that was called, and nothing of it was done.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::body::Body;
use axum::extract::Request;
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, DATE};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, Response, StatusCode};
use tidemill_aws_wire::call::{AwsCall, NotServed};
use tidemill_aws_wire::dialect::Dialect;
use tidemill_aws_wire::door_error::{DoorTrouble, door_error};
use tidemill_aws_wire::signature::{ALGORITHM, SignatureCheck, SignatureClaim, SignatureError, WireRequest};
use tidemill_aws_wire::wire_date::http_date;
use tidemill_aws_wire::{RequestHead, WireAnswer, sts};
use tidemill_engine::engine::EngineError;
use tidemill_engine::warn_seldom;
use tracing::error;

use crate::admission::caller::Caller;
use crate::app::App;
use crate::gateway::names::{ACCOUNT, GatewayNames};
use crate::gateway::passed::Passed;
use crate::gateway::{bus, rights};
use crate::request::asked::Asked;
use crate::request::body;
use crate::request::body_budget::Holder;
use crate::router::{check_local, secured};

/// The header in which a client of AWS finds the id of its request.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-amzn-requestid");
/// The same for S3.
const S3_REQUEST_ID: HeaderName = HeaderName::from_static("x-amz-request-id");

/// Whether a request is one of a client of AWS.
pub(crate) fn is_aws(parts: &Parts) -> bool {
    let signs = |value: &HeaderValue| value.as_bytes().starts_with(ALGORITHM.as_bytes());
    parts.headers.get_all(AUTHORIZATION).iter().any(signs)
        || parts.headers.contains_key("x-amz-target")
        || parts.uri.query().is_some_and(|query| {
            query.split('&').any(|pair| pair.split('=').next() == Some("X-Amz-Algorithm"))
        })
}

/// Answers a request of a client of AWS.
pub(crate) async fn answer(app: App, names: GatewayNames, request: Request) -> Response<Body> {
    let request_id = Asked::current().map(|asked| asked.id.to_string()).unwrap_or_default();
    let (parts, body) = request.into_parts();
    let mut unread = Some(body);
    let entering = enter(&app, &names, &parts, &mut unread, &request_id);
    let answered = CaughtPanic(Box::pin(entering)).await.unwrap_or_else(|panic| {
        error!(cause = %panic, instance = %request_id, "a request of a client of AWS failed");
        let dialect = dialect_of(&parts).unwrap_or(Dialect::StepFunctions);
        door_error(dialect, DoorTrouble::Unavailable, &request_id)
    });
    if let Some(unread) = unread {
        body::discard(unread).await;
    }
    let date = http_date(i64::try_from(app.engine().now().millis()).unwrap_or(i64::MAX));
    secured(response(answered, &request_id, &date))
}

/// All gates, then the service.
async fn enter(
    app: &App,
    names: &GatewayNames,
    parts: &Parts,
    unread: &mut Option<Body>,
    request_id: &str,
) -> WireAnswer {
    let headers: Vec<(&str, &[u8])> =
        parts.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let wire = WireRequest {
        method: parts.method.as_str(),
        path: parts.uri.path(),
        query: parts.uri.query().unwrap_or_default(),
        headers: &headers,
    };
    let texts: Vec<(&str, &str)> =
        headers.iter().filter_map(|(name, value)| Some((*name, std::str::from_utf8(value).ok()?))).collect();
    let head = RequestHead { method: wire.method, path: wire.path, query: wire.query, headers: &texts };
    let claim = SignatureClaim::of(&wire);
    let scope = claim.as_ref().ok().map(|claim| claim.scope().service.as_str());
    let Some(dialect) = Dialect::of(&head, scope) else {
        return NotServed::Service.answer(request_id);
    };
    let refuse = |trouble| door_error(dialect, trouble, request_id);
    let claim = match claim {
        Ok(claim) => claim,
        Err(problem) => return refuse(trouble_of(&problem)),
    };
    let (caller, secret) = match known_caller(app, parts, &claim).await {
        Ok(known) => known,
        Err(trouble) => return refuse(trouble),
    };
    if let Some(tenant) = caller.limited_tenant() {
        tracing::Span::current().record("tenant", tenant.as_str());
    }
    let is_slow = app.rates().take(caller.name(), Instant::now()).is_err();
    let is_crowded = caller
        .limited_tenant()
        .is_some_and(|tenant| app.tenant_rates().take(tenant.as_str(), Instant::now()).is_err());
    if is_slow || is_crowded {
        return refuse(DoorTrouble::Rate);
    }
    let config = app.config();
    let bytes_max = if dialect == Dialect::S3 { config.blob_bytes_max } else { config.body_bytes_max };
    let account = app.bodies().account(Holder::of(&caller));
    let read = body::read(unread.take().unwrap_or_default(), bytes_max, config.body_timeout, &account).await;
    let body = match read {
        Ok(read) => read,
        Err(problem) => return too_large_or_slow(dialect, &problem, request_id),
    };
    if let Some(secret) = secret {
        let now_secs = app.engine().now().millis() / 1_000;
        let check = SignatureCheck { secret: &secret, service: dialect.service().scope_name(), now_secs };
        if let Err(problem) = claim.verify(&wire, &body.bytes, &check) {
            return refuse(trouble_of(&problem));
        }
    }
    let call = match AwsCall::read(&head, Some(&claim.scope().service), &body.bytes) {
        // What was signed for one service is no call of another.
        Ok(call) if call.dialect().service() != dialect.service() => {
            return refuse(DoorTrouble::WrongSignature);
        }
        Ok(call) => call,
        Err(not_served) => return not_served.answer(request_id),
    };
    if !caller.has_any(rights::roles_of(call)) {
        return refuse(DoorTrouble::Role);
    }
    let passed = Passed { app, caller: &caller, names, request_id, body: &body.bytes };
    serve(call, &passed).await
}

async fn serve(call: AwsCall, passed: &Passed<'_>) -> WireAnswer {
    match call {
        AwsCall::EventBridge(operation) => bus::answer(passed, operation).await,
        AwsCall::Sts(_) => {
            let user = passed.caller.name();
            let arn = format!("arn:aws:iam::{ACCOUNT}:user/{user}");
            sts::caller_identity(ACCOUNT, user, &arn, passed.request_id)
        }
        call => not_served(call).answer(passed.request_id),
    }
}

fn not_served(call: AwsCall) -> NotServed {
    let operation = match call {
        AwsCall::Sqs(operation, _) => operation.name(),
        AwsCall::DynamoDb(operation) => operation.name(),
        AwsCall::EventBridge(operation) => operation.name(),
        AwsCall::StepFunctions(operation) => operation.name(),
        AwsCall::Sts(operation) => operation.name(),
        AwsCall::S3 => "of S3",
    };
    NotServed::Operation { dialect: call.dialect(), operation: operation.to_owned() }
}

/// Whose request it is, and the secret that its signature is checked with. Without keys any signature is taken, from the
/// user of this machine.
async fn known_caller(
    app: &App,
    parts: &Parts,
    claim: &SignatureClaim,
) -> Result<(Caller, Option<String>), DoorTrouble> {
    let unavailable = |error: EngineError| {
        warn_seldom!(error, "nobody can say whose key a request of a client of AWS was signed with");
        DoorTrouble::Unavailable
    };
    if !app.engine().has_keys().await.map_err(unavailable)? {
        check_local(parts).map_err(|_| DoorTrouble::Role)?;
        return Ok((Caller::keyless(app.config().tenant.clone()), None));
    }
    match app.engine().signing_key(claim.access_key_id()).await.map_err(unavailable)? {
        Some((key, secret)) => Ok((Caller::key(key.id.as_str(), key.role, &key.tenants), Some(secret))),
        None => Err(DoorTrouble::UnknownKey),
    }
}

fn trouble_of(problem: &SignatureError) -> DoorTrouble {
    match problem {
        SignatureError::Missing => DoorTrouble::NoSignature,
        SignatureError::Skewed { .. } | SignatureError::Expired { .. } => DoorTrouble::Date,
        SignatureError::SessionToken => DoorTrouble::UnknownKey,
        _ => DoorTrouble::WrongSignature,
    }
}

/// The service that a request is for, as far as its head says so.
fn dialect_of(parts: &Parts) -> Option<Dialect> {
    let headers: Vec<(&str, &str)> = parts
        .headers
        .iter()
        .filter_map(|(name, value)| Some((name.as_str(), value.to_str().ok()?)))
        .collect();
    let query = parts.uri.query().unwrap_or_default();
    let head =
        RequestHead { method: parts.method.as_str(), path: parts.uri.path(), query, headers: &headers };
    Dialect::of(&head, None)
}

fn too_large_or_slow(dialect: Dialect, problem: &crate::problem::Problem, request_id: &str) -> WireAnswer {
    use tidemill_aws_wire::error_answer::{ErrorParts, error_answer};
    let (status, code) = match problem.status {
        StatusCode::PAYLOAD_TOO_LARGE if dialect == Dialect::S3 => (400, "EntityTooLarge"),
        StatusCode::PAYLOAD_TOO_LARGE => (413, "RequestEntityTooLargeException"),
        StatusCode::REQUEST_TIMEOUT if dialect == Dialect::S3 => (400, "RequestTimeout"),
        StatusCode::REQUEST_TIMEOUT => (408, "RequestTimeoutException"),
        StatusCode::BAD_REQUEST => (400, "IncompleteBody"),
        _ => return door_error(dialect, DoorTrouble::Rate, request_id),
    };
    error_answer(dialect, ErrorParts { status, code, query_code: None, message: &problem.detail }, request_id)
}

fn response(answer: WireAnswer, request_id: &str, date: &str) -> Response<Body> {
    let mut response = Response::new(Body::from(answer.body));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    let mut put = |name: HeaderName, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(name, value);
        }
    };
    for name in [REQUEST_ID, S3_REQUEST_ID] {
        put(name, request_id);
    }
    put(DATE, date);
    if let Some(media_type) = answer.media_type {
        put(CONTENT_TYPE, media_type);
    }
    for (name, value) in &answer.headers {
        if let Ok(name) = HeaderName::from_bytes(name.as_bytes()) {
            put(name, value);
        }
    }
    response
}

/// A request whose panic becomes an answer: the mistake is ours, and the connection need not suffer.
struct CaughtPanic<F>(Pin<Box<F>>);

impl<F: Future<Output = WireAnswer>> Future for CaughtPanic<F> {
    type Output = Result<WireAnswer, String>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let future = &mut self.0;
        match std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(crate::router::panicked(&*panic))),
        }
    }
}
