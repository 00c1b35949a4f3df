//! Conditions of a request on the object that is there.

use super::fault::S3Fault;
use crate::RequestHead;

/// `If-Match` and `If-None-Match`. Conditions on dates are not served: a date of HTTP is too coarse for them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectConditions {
    if_match: Option<String>,
    if_none_match: Option<String>,
}

/// What the conditions say about an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectVerdict {
    Go,
    /// A reader has this object already: 304.
    NotModified,
    /// Another object is there, or none, or one at all: 412.
    PreconditionFailed,
}

impl ObjectConditions {
    pub(super) fn read(head: &RequestHead<'_>) -> Result<Self, S3Fault> {
        if head.header("if-unmodified-since").is_some() {
            return Err(S3Fault::not_implemented("If-Unmodified-Since"));
        }
        let value = |name| head.header(name).map(str::to_owned);
        Ok(Self { if_match: value("if-match"), if_none_match: value("if-none-match") })
    }

    /// Judges a read of the object with this `ETag`, or a write over it; none if there is no object.
    pub fn judge(&self, etag: Option<&str>, is_read: bool) -> ObjectVerdict {
        let holds = |condition: &str| {
            etag.is_some_and(|etag| {
                let mut wanted =
                    condition.split(',').map(|tag| tag.trim().trim_start_matches("W/").trim_matches('"'));
                wanted.any(|tag| tag == "*" || tag == etag.trim_matches('"'))
            })
        };
        if self.if_match.as_deref().is_some_and(|condition| !holds(condition)) {
            return ObjectVerdict::PreconditionFailed;
        }
        if self.if_none_match.as_deref().is_some_and(holds) {
            return if is_read { ObjectVerdict::NotModified } else { ObjectVerdict::PreconditionFailed };
        }
        ObjectVerdict::Go
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_compare_tags_with_and_without_quotes() {
        use ObjectVerdict::{Go, NotModified, PreconditionFailed};
        for (name, condition, etag, read, write) in [
            ("if-match", "\"a\"", Some("\"a\""), Go, Go),
            ("if-match", "a", Some("\"a\""), Go, Go),
            ("if-match", "\"b\"", Some("\"a\""), PreconditionFailed, PreconditionFailed),
            ("if-match", "*", None, PreconditionFailed, PreconditionFailed),
            ("if-none-match", "*", Some("\"a\""), NotModified, PreconditionFailed),
            ("if-none-match", "*", None, Go, Go),
            ("if-none-match", "\"b\", \"a\"", Some("\"a\""), NotModified, PreconditionFailed),
            ("if-none-match", "\"b\"", Some("\"a\""), Go, Go),
        ] {
            let headers = [(name, condition)];
            let head = RequestHead { method: "GET", path: "/", query: "", headers: &headers };
            let conditions = ObjectConditions::read(&head).unwrap();
            assert_eq!(conditions.judge(etag, true), read, "{name}: {condition} of {etag:?}");
            assert_eq!(conditions.judge(etag, false), write, "{name}: {condition} of {etag:?}");
        }
    }
}
