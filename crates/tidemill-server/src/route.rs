//! Routes: everything that is said of an endpoint, once.
//!
//! From a route come the handler's place in the router, the check of roles, parameters and content type, and its part
//! of the OpenAPI document.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Method, Response, StatusCode};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde_json::Value;
use tidemill_model::TenantId;

use crate::admission::caller::Caller;
use crate::api::Role;
use crate::app::App;
use crate::connection::Peer;
use crate::problem::Problem;
use crate::request::body::ReadBody;
use crate::request::body_budget::LARGE_BODY_BYTES;
use crate::request::given_job::GivenJob;
use crate::request::param::{Inputs, Kind, Param, Place};
use crate::server_address::ServerAddress;

/// An endpoint.
pub(crate) struct Route {
    pub(crate) method: Method,
    /// With `{name}` for a part and `{*name}` for the rest.
    pub(crate) path: &'static str,
    pub(crate) access: Access,
    pub(crate) group: &'static str,
    /// The operation's id.
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) about: &'static str,
    pub(crate) params: Vec<Param>,
    pub(crate) body: BodyKind,
    /// The bytes of its JSON, within those that the server takes at all.
    pub(crate) body_bytes_max: usize,
    /// A body that is safe to send as it stands: it hits nothing that is there. Of a GET, parameters that it needs.
    pub(crate) example: Option<Value>,
    /// A body that is taken, and changes something.
    pub(crate) sample: Option<Value>,
    pub(crate) answers: Vec<Answer>,
    /// Problems beyond those that every route of its kind may have.
    pub(crate) fails: Vec<u16>,
    pub(crate) handler: Handler,
}

/// Which callers may call a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Everyone,
    Roles(&'static [Role]),
}

/// The bytes of a JSON body where nobody has much to say.
const PLAIN_BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The same where properties are read into values, which take many times their text.
pub(crate) const VALUES_BYTES_MAX: usize = 2 * 1024 * 1024;

/// The same of calls that say little, and of all that wait for something: none of them is large, so none takes a turn.
pub(crate) const SMALL_BODY_BYTES_MAX: usize = LARGE_BODY_BYTES;

pub(crate) const READ: Access = Access::Roles(&[Role::Reader, Role::Producer, Role::Admin]);
pub(crate) const SUBMIT: Access = Access::Roles(&[Role::Producer, Role::Admin]);
pub(crate) const ADMIN: Access = Access::Roles(&[Role::Admin]);
pub(crate) const WORK: Access = Access::Roles(&[Role::Worker]);

/// Writes down a type's schema.
pub(crate) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;

/// What a route reads.
#[derive(Clone, Copy)]
pub(crate) enum BodyKind {
    Nothing,
    Json { schema: SchemaOf, optional: bool },
    Bytes,
}

/// One way to answer.
#[derive(Clone, Copy)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) about: &'static str,
    pub(crate) content: Content,
}

#[derive(Clone, Copy)]
pub(crate) enum Content {
    Nothing,
    Json(SchemaOf),
    /// A text or bytes of this type.
    Raw(&'static str),
}

/// What a handler gets.
pub(crate) struct Call {
    pub(crate) app: App,
    pub(crate) caller: Caller,
    pub(crate) inputs: Inputs,
    pub(crate) body: Bytes,
    /// What stands for the body of a job that is submitted in this process.
    pub(crate) given: Option<GivenJob>,
    /// Counts the body's bytes until the call is over.
    pub(crate) read: ReadBody,
    pub(crate) peer: Peer,
    pub(crate) address: ServerAddress,
}

impl Call {
    /// The body was understood and is not looked at again: its memory is free for what follows.
    pub(crate) fn forget_body(&mut self) {
        self.body = Bytes::new();
        self.read = ReadBody::default();
    }

    /// The tenant whose data the call is about.
    pub(crate) fn tenant(&self) -> Result<TenantId, Problem> {
        self.caller.tenant().cloned().ok_or_else(|| Problem::forbidden("FORBIDDEN", "the key has no tenant"))
    }
}

pub(crate) type Reply = Result<Response<Body>, Problem>;
pub(crate) type Handler = Arc<dyn Fn(Call) -> Pin<Box<dyn Future<Output = Reply> + Send>> + Send + Sync>;

impl Route {
    pub(crate) fn new<F, R>(
        method: Method,
        path: &'static str,
        access: Access,
        [group, name, summary]: [&'static str; 3],
        handler: F,
    ) -> Self
    where
        F: Fn(Call) -> R + Send + Sync + 'static,
        R: Future<Output = Reply> + Send + 'static,
    {
        Self {
            method,
            path,
            access,
            group,
            name,
            summary,
            about: "",
            params: Vec::new(),
            body: BodyKind::Nothing,
            body_bytes_max: PLAIN_BODY_BYTES_MAX,
            example: None,
            sample: None,
            answers: Vec::new(),
            fails: Vec::new(),
            handler: Arc::new(move |call| Box::pin(handler(call))),
        }
    }

    pub(crate) fn about(mut self, about: &'static str) -> Self {
        self.about = about;
        self
    }

    fn param(mut self, place: Place, name: &'static str, kind: Kind, about: &'static str) -> Self {
        self.params.push(Param { name, place, kind, about });
        self
    }

    pub(crate) fn part(self, name: &'static str, kind: Kind, about: &'static str) -> Self {
        self.param(Place::Path, name, kind, about)
    }

    pub(crate) fn query(self, name: &'static str, kind: Kind, about: &'static str) -> Self {
        self.param(Place::Query, name, kind, about)
    }

    pub(crate) fn header(self, name: &'static str, kind: Kind, about: &'static str) -> Self {
        self.param(Place::Header, name, kind, about)
    }

    /// `limit` and `cursor` of a list.
    pub(crate) fn paged(self) -> Self {
        self.query("limit", Kind::Integer { least: 1, most: LIST_MAX }, "The size of a page; 50 when absent.")
            .query("cursor", Kind::Text { most: 800 }, "`nextCursor` of the page before.")
    }

    pub(crate) fn job_id(self) -> Self {
        self.part("jobId", Kind::JobId, "The job.")
    }

    pub(crate) fn request_id(self) -> Self {
        self.part("requestId", Kind::Word { most: 256 }, "The task.")
    }

    pub(crate) fn reads<T: JsonSchema>(self) -> Self {
        self.reads_schema(SchemaGenerator::subschema_for::<T>)
    }

    pub(crate) fn reads_schema(mut self, schema: SchemaOf) -> Self {
        self.body = BodyKind::Json { schema, optional: false };
        self
    }

    pub(crate) fn example(mut self, body: Value) -> Self {
        self.example = Some(body);
        self
    }

    pub(crate) fn sample(mut self, body: Value) -> Self {
        self.sample = Some(body);
        self
    }

    /// The body may be left out.
    pub(crate) fn may_read<T: JsonSchema>(mut self) -> Self {
        self.body = BodyKind::Json { schema: SchemaGenerator::subschema_for::<T>, optional: true };
        self
    }

    /// The body may be as large as the server takes at all.
    pub(crate) fn reads_much(mut self) -> Self {
        self.body_bytes_max = usize::MAX;
        self
    }

    /// The body is small, for every caller.
    pub(crate) fn reads_little(self) -> Self {
        self.reads_at_most(SMALL_BODY_BYTES_MAX)
    }

    pub(crate) fn reads_at_most(mut self, bytes: usize) -> Self {
        self.body_bytes_max = bytes;
        self
    }

    pub(crate) fn reads_bytes(mut self) -> Self {
        self.body = BodyKind::Bytes;
        self
    }

    pub(crate) fn gives<T: JsonSchema>(mut self, status: u16, about: &'static str) -> Self {
        let content = Content::Json(SchemaGenerator::subschema_for::<T>);
        self.answers.push(Answer { status, about, content });
        self
    }

    pub(crate) fn gives_raw(mut self, status: u16, about: &'static str, media: &'static str) -> Self {
        self.answers.push(Answer { status, about, content: Content::Raw(media) });
        self
    }

    pub(crate) fn gives_nothing(mut self, status: u16, about: &'static str) -> Self {
        self.answers.push(Answer { status, about, content: Content::Nothing });
        self
    }

    pub(crate) fn fails(mut self, statuses: &[u16]) -> Self {
        self.fails.extend(statuses);
        self
    }

    /// Every status that the route may answer with a problem, in order.
    pub(crate) fn problem_statuses(&self) -> Vec<u16> {
        let mut statuses = vec![403, 405, 500, 503];
        if self.access != Access::Everyone {
            statuses.extend([401, 429]);
        }
        if self.params.iter().any(|param| param.place == Place::Path) {
            statuses.push(404);
        }
        // A parameter that no route has is refused everywhere.
        statuses.push(400);
        match self.body {
            BodyKind::Nothing if self.method != Method::POST => {}
            // Where nothing is read a body that says anything is refused.
            BodyKind::Nothing | BodyKind::Json { .. } => statuses.extend([408, 413, 415]),
            BodyKind::Bytes => statuses.extend([408, 413]),
        }
        statuses.extend(&self.fails);
        statuses.sort_unstable();
        statuses.dedup();
        statuses.retain(|status| !self.answers.iter().any(|answer| answer.status == *status));
        statuses
    }

    /// Whether the document says that the route may answer so.
    pub(crate) fn is_documented(&self, status: StatusCode) -> bool {
        let status = status.as_u16();
        self.answers.iter().any(|answer| answer.status == status) || self.problem_statuses().contains(&status)
    }
}

/// The most items of one page.
pub(crate) const LIST_MAX: u64 = 200;
/// The items of a page when the caller does not say.
pub(crate) const LIST_DEFAULT: u64 = 50;

/// The page size that a list was asked for.
pub(crate) fn page_size(inputs: &Inputs) -> usize {
    usize::try_from(inputs.number("limit").unwrap_or(LIST_DEFAULT)).unwrap_or(1)
}

/// A JSON answer.
#[expect(clippy::unnecessary_wraps, reason = "the last word of handlers, which may fail before it")]
pub(crate) fn json<T: Serialize>(status: StatusCode, value: &T) -> Reply {
    let bytes = serde_json::to_vec(value).expect("our answers have string keys only");
    Ok(raw(status, "application/json", bytes))
}

/// An answer of any type.
pub(crate) fn raw(status: StatusCode, media: &'static str, bytes: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(bytes.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    response
}
