//! Where spans go, by what the operator set.

use axum::http::{HeaderName, HeaderValue};

/// A collector that takes OTLP as JSON over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TraceSettings {
    pub(crate) url: String,
    pub(crate) headers: Vec<(String, String)>,
    /// What traces call this program.
    pub(crate) service: String,
    /// The stage.
    pub(crate) environment: String,
}

impl TraceSettings {
    /// The address of the signal itself goes before that of all signals, to which a path is added.
    pub(crate) fn url_of(traces: Option<&str>, all: Option<&str>) -> Option<String> {
        let below = |base: &str| format!("{}/v1/traces", base.trim_end_matches('/'));
        traces.map(str::to_owned).or_else(|| all.map(below))
    }
}

/// Headers as `name=value,name=value`, values percent-encoded. `None` when they are something else.
pub(crate) fn parse_headers(text: &str) -> Option<Vec<(String, String)>> {
    let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
    parts
        .map(|part| {
            let (name, value) = part.split_once('=')?;
            let name = HeaderName::from_bytes(name.trim().as_bytes()).ok()?;
            let value = tidemill_api::decode(value.trim())?;
            HeaderValue::from_str(&value).ok()?;
            Some((name.as_str().to_owned(), value))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_traces_goes_before_that_of_all() {
        for (traces, all, expected) in [
            (None, None, None),
            (None, Some("http://a:4318"), Some("http://a:4318/v1/traces")),
            (None, Some("http://a/x/"), Some("http://a/x/v1/traces")),
            (Some("http://b/y"), Some("http://a"), Some("http://b/y")),
        ] {
            assert_eq!(TraceSettings::url_of(traces, all).as_deref(), expected);
        }
    }

    #[test]
    fn headers_are_read_or_refused() {
        let read = |text| parse_headers(text).map(|headers| format!("{headers:?}"));
        for (text, expected) in [
            ("", Some("[]")),
            ("a=b", Some(r#"[("a", "b")]"#)),
            (" Api-Key = x%20y , b=c=d,", Some(r#"[("api-key", "x y"), ("b", "c=d")]"#)),
            ("a", None),
            ("a b=c", None),
            ("a=%0a", None),
            ("a=%4", None),
            ("=x", None),
        ] {
            assert_eq!(read(text).as_deref(), expected, "{text}");
        }
    }
}
