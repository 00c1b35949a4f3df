//! Problems: what a request is answered with when it is not carried out.
//!
//! A problem has a status and a stable code. Its texts are cleaned when they leave: see `Problem::answer`.

use std::borrow::Cow;
use std::fmt::Display;

use axum::body::Body;
use axum::http::header::{ALLOW, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, Response, StatusCode};
use tidemill_engine::log_lines::Pace;
use tracing::{error, warn};

use crate::api::{Detail, ProblemDocument};
use crate::request::asked::Asked;

/// The content type of problems.
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// Lines a minute about requests which failed for one and the same reason. The reason is known by then.
const LINES_A_MINUTE: u32 = 60;

/// Why a request is not carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    pub(crate) code: Cow<'static, str>,
    pub(crate) detail: String,
    pub(crate) details: Vec<Detail>,
    /// Seconds after which it is worth trying again.
    pub(crate) retry_after: Option<u64>,
    /// The methods of the path.
    pub(crate) allow: Option<Box<str>>,
    /// What the log says of it, if that is more than the detail.
    pub(crate) inside: Option<Box<Inside>>,
}

/// What is known of a problem within the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Inside {
    /// What happened, with the names of files: for the log, and never for clients.
    Cause(String),
    /// It came from a route that was asked from within: the log has it.
    Logged,
}

impl Problem {
    pub(crate) fn new(
        status: StatusCode,
        code: impl Into<Cow<'static, str>>,
        detail: impl Into<String>,
    ) -> Self {
        let (code, detail) = (code.into(), detail.into());
        Self { status, code, detail, details: Vec::new(), retry_after: None, allow: None, inside: None }
    }

    /// One field of the body is wrong.
    pub(crate) fn field(
        code: impl Into<Cow<'static, str>>,
        field: impl Into<String>,
        message: impl Into<String>,
    ) -> Self {
        let (code, field, message) = (code.into(), field.into(), message.into());
        // Some messages name their field themselves.
        let bare = message.strip_prefix(&field).and_then(|rest| rest.strip_prefix(' ')).map(str::to_owned);
        let message = bare.unwrap_or(message);
        let detail = format!("{field} {message}");
        let details = vec![Detail::new(field, code.clone(), message)];
        Self { details, ..Self::new(StatusCode::BAD_REQUEST, code, detail) }
    }

    pub(crate) fn invalid_field(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::field("INVALID_FIELD", field, message)
    }

    pub(crate) fn invalid_parameter(name: impl Into<String>, message: impl Into<String>) -> Self {
        Self::field("INVALID_PARAMETER", name, message)
    }

    /// Several things are wrong; the first one names the problem.
    pub(crate) fn all(details: Vec<Detail>, total: usize) -> Self {
        let Some(first) = details.first().cloned() else {
            return Self::new(StatusCode::BAD_REQUEST, "INVALID_FIELD", "the request is not valid");
        };
        let more = match total {
            0 | 1 => String::new(),
            // The check stops soon after as many problems as are listed.
            _ if total > details.len() => format!(" (the first of more than {} problems)", details.len()),
            _ => format!(" (the first of {total} problems)"),
        };
        let detail = format!("{}: {}{more}", first.field, first.message);
        Self { details, ..Self::new(StatusCode::BAD_REQUEST, first.code, detail) }
    }

    pub(crate) fn not_found(what: &str, id: &str) -> Self {
        // Long ids come from attackers; they learn nothing from reading them again.
        let shown: String = id.chars().take(80).collect();
        Self::new(StatusCode::NOT_FOUND, "NOT_FOUND", format!("{what} {shown:?} does not exist"))
    }

    pub(crate) fn no_such_route() -> Self {
        Self::new(StatusCode::NOT_FOUND, "NO_SUCH_ROUTE", "there is nothing here; see /openapi.json")
    }

    pub(crate) fn unauthenticated(detail: &str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "UNAUTHENTICATED", detail)
    }

    pub(crate) fn forbidden(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, code, detail)
    }

    pub(crate) fn conflict(code: &'static str, detail: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, code, detail)
    }

    pub(crate) fn too_large(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "TOO_LARGE", detail)
    }

    pub(crate) fn unavailable(code: &'static str, detail: impl Into<String>, retry_after: u64) -> Self {
        Self { retry_after: Some(retry_after), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, code, detail) }
    }

    pub(crate) fn too_many(code: &'static str, detail: impl Into<String>, retry_after: u64) -> Self {
        Self { retry_after: Some(retry_after), ..Self::new(StatusCode::TOO_MANY_REQUESTS, code, detail) }
    }

    pub(crate) fn internal(cause: &dyn Display) -> Self {
        let detail = "the server made a mistake; its log says more";
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "INTERNAL", detail).because(cause)
    }

    /// With what happened inside, for the log.
    pub(crate) fn because(self, cause: &dyn Display) -> Self {
        Self { inside: Some(Box::new(Inside::Cause(cause.to_string()))), ..self }
    }

    /// Writes what the server or its store is to blame for into the log, with the id that the answer has.
    pub(crate) fn log(&self) {
        static PACE: Pace = Pace::a_minute(LINES_A_MINUTE);
        if !self.status.is_server_error() {
            return;
        }
        let cause = match self.inside.as_deref() {
            Some(Inside::Logged) => return,
            Some(Inside::Cause(cause)) => cause,
            None => &self.detail,
        };
        let Some(told) = PACE.due(&cause) else { return };
        let asked = Asked::current();
        let asked = asked.as_ref();
        let (method, route) = (asked.map(|asked| asked.method.as_str()), asked.map(|asked| asked.route));
        let instance = asked.map(|asked| tracing::field::display(asked.id));
        let (status, code, left_out) = (self.status.as_u16(), &*self.code, told.left_out());
        if self.status == StatusCode::INTERNAL_SERVER_ERROR {
            error!(error = cause, status, code, method, route, instance, left_out, "a request failed");
        } else {
            warn!(error = cause, status, code, method, route, instance, left_out, "a request was refused");
        }
    }

    /// The document, with texts passed through `clean`.
    pub(crate) fn document(&self, clean: impl Fn(&str) -> String) -> ProblemDocument {
        let details = self.details.iter().map(|detail| Detail {
            field: clean(&detail.field),
            message: clean(&detail.message),
            ..detail.clone()
        });
        // What is between a field's name and its message must not be taken for a secret behind its name.
        let named = self.details.first().and_then(|first| {
            let rest =
                self.detail.strip_prefix(&first.field)?.strip_prefix(": ")?.strip_prefix(&first.message)?;
            Some(format!("{}: {}{rest}", clean(&first.field), clean(&first.message)))
        });
        ProblemDocument {
            r#type: format!("urn:tidemill:problem:{}", self.code),
            title: self.status.canonical_reason().unwrap_or("Error").to_owned(),
            status: self.status.as_u16(),
            code: self.code.clone(),
            detail: named.unwrap_or_else(|| clean(&self.detail)),
            instance: Asked::current().map(|asked| asked.id.urn()),
            details: details.collect(),
        }
    }

    /// The answer, with texts passed through `clean`. The log gets the cause.
    pub(crate) fn answer(&self, clean: impl Fn(&str) -> String) -> Response<Body> {
        self.log();
        let text = serde_json::to_string(&self.document(clean)).expect("texts can be written as JSON");
        let mut response = Response::new(Body::from(text));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(allow) = self.allow.as_deref().and_then(|allow| HeaderValue::from_str(allow).ok()) {
            headers.insert(ALLOW, allow);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_several_problems_names_the_answer() {
        let detail = |code: &'static str| Detail::new("tasks[1].dependsOn", code, "is wrong");
        let problem = Problem::all(vec![detail("CYCLE"), detail("SELF_DEPENDENCY")], 2);
        let document = problem.document(str::to_owned);
        assert_eq!((document.status, &*document.code), (400, "CYCLE"));
        assert_eq!(document.detail, "tasks[1].dependsOn: is wrong (the first of 2 problems)");
        let more = Problem::all(vec![detail("CYCLE"), detail("SELF_DEPENDENCY")], 7);
        assert!(more.detail.ends_with("(the first of more than 2 problems)"), "{}", more.detail);
        assert_eq!(document.r#type, "urn:tidemill:problem:CYCLE");
        assert_eq!(document.details.len(), 2);
    }

    #[test]
    fn texts_are_cleaned_on_the_way_out() {
        let problem = Problem::invalid_field("name", "holds hunter22");
        let document = problem.document(|text| text.replace("hunter22", "[REDACTED]"));
        assert_eq!(document.detail, "name holds [REDACTED]");
        assert_eq!(document.details[0].message, "holds [REDACTED]");
    }
}
