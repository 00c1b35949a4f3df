//! A request as it came over the wire, with nothing decoded: a signature is over what was sent.

use super::SignatureError;
use super::bounds::{HEADERS_BYTES_MAX, HEADERS_MAX, PATH_BYTES_MAX, QUERY_BYTES_MAX};

/// All of a request but its body.
#[derive(Debug, Clone, Copy)]
pub struct WireRequest<'r> {
    /// Such as `GET`.
    pub method: &'r str,
    /// The path of the request line as it was sent, with its percent signs.
    pub path: &'r str,
    /// The query as it was sent, without its question mark; empty if there is none.
    pub query: &'r str,
    /// Names in any case, values as bytes, in the order in which they came.
    pub headers: &'r [(&'r str, &'r [u8])],
}

impl<'r> WireRequest<'r> {
    /// All values of a header, whose name is given in lower case.
    pub fn values(&self, name: &str) -> impl Iterator<Item = &'r [u8]> {
        self.headers
            .iter()
            .filter(move |(other, _)| other.eq_ignore_ascii_case(name))
            .map(|(_, value)| *value)
    }

    /// The one value of a header as text without blanks around it. Several are ambiguous, so they are an error.
    pub(crate) fn single(&self, name: &'static str) -> Result<Option<&'r str>, Ambiguous> {
        let mut values = self.values(name);
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(Ambiguous);
        }
        std::str::from_utf8(value).map(|text| Some(text.trim())).map_err(|_| Ambiguous)
    }

    pub(super) fn within_bounds(&self) -> Result<(), SignatureError> {
        let headers_bytes = self.headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        for (piece, size, limit) in [
            ("the path", self.path.len(), PATH_BYTES_MAX),
            ("the query", self.query.len(), QUERY_BYTES_MAX),
            ("the number of headers", self.headers.len(), HEADERS_MAX),
            ("the headers", headers_bytes, HEADERS_BYTES_MAX),
        ] {
            if size > limit {
                return Err(SignatureError::TooLarge { piece, limit });
            }
        }
        Ok(())
    }
}

/// A header that must have one value has several, or one that is no text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ambiguous;
