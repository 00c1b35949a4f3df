//! The query of an address: its parameters, decoded, and the canonical form that is signed.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};

use super::SignatureError;
use super::bounds::{QUERY_BYTES_MAX, QUERY_PARAMETERS_MAX};

/// All that AWS encodes: everything but the unreserved characters of RFC 3986.
pub(super) const STRICT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The parameter that holds the signature itself, which cannot be signed.
pub(super) const SIGNATURE: &str = "X-Amz-Signature";

/// Parameters in the order in which they were sent.
#[derive(Debug, Clone)]
pub(super) struct Parameters(Vec<(Vec<u8>, Vec<u8>)>);

impl Parameters {
    pub(super) fn parse(query: &str) -> Result<Self, SignatureError> {
        if query.len() > QUERY_BYTES_MAX {
            return Err(SignatureError::TooLarge { piece: "the query", limit: QUERY_BYTES_MAX });
        }
        let mut parameters = Vec::new();
        for part in query.split('&').filter(|part| !part.is_empty()) {
            if parameters.len() == QUERY_PARAMETERS_MAX {
                let piece = "the number of query parameters";
                return Err(SignatureError::TooLarge { piece, limit: QUERY_PARAMETERS_MAX });
            }
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            parameters.push((decoded(name), decoded(value)));
        }
        Ok(Self(parameters))
    }

    /// The value of a parameter. A signature takes each of its own once: of two, a reader further on might see the other.
    pub(super) fn single(&self, name: &str) -> Result<Option<String>, SignatureError> {
        let mut values = self.0.iter().filter(|(other, _)| other == name.as_bytes()).map(|(_, value)| value);
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(SignatureError::Malformed("a parameter of the signature is there twice"));
        }
        let text = String::from_utf8(value.clone());
        text.map(Some).map_err(|_| SignatureError::Malformed("a parameter of the signature is no text"))
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.0.iter().any(|(other, _)| other == name.as_bytes())
    }

    /// Encoded strictly and sorted, without the signature.
    pub(super) fn canonical(&self) -> String {
        let encoded = |bytes: &[u8]| percent_encode(bytes, STRICT).to_string();
        let mut parts: Vec<(String, String)> = self
            .0
            .iter()
            .filter(|(name, _)| name != SIGNATURE.as_bytes())
            .map(|(name, value)| (encoded(name), encoded(value)))
            .collect();
        parts.sort_unstable();
        let parts: Vec<String> = parts.iter().map(|(name, value)| format!("{name}={value}")).collect();
        parts.join("&")
    }
}

/// A plus sign is a space here, as in forms; a plus itself comes as `%2B`.
fn decoded(text: &str) -> Vec<u8> {
    percent_decode(text.replace('+', " ").as_bytes()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_sorted_and_encoded_strictly() {
        for (query, expected) in [
            ("", ""),
            ("lifecycle", "lifecycle="),
            ("a=", "a="),
            ("&&a=1&", "a=1"),
            ("b=2&a=1", "a=1&b=2"),
            ("a=2&a=1&a", "a=&a=1&a=2"),
            ("a-=1&a=2", "a=2&a-=1"),
            ("a=%7E&b=%2d", "a=~&b=-"),
            ("a=x+y&b=x%2By&c=x%20y", "a=x%20y&b=x%2By&c=x%20y"),
            ("a=b=c", "a=b%3Dc"),
            ("a=%zz", "a=%25zz"),
            ("a=/*'()!", "a=%2F%2A%27%28%29%21"),
            ("ü=名", "%C3%BC=%E5%90%8D"),
            ("a=%ff", "a=%FF"),
            ("X-Amz-Signature=0&a=1", "a=1"),
        ] {
            assert_eq!(Parameters::parse(query).unwrap().canonical(), expected, "{query}");
        }
    }

    #[test]
    fn a_query_has_bounds() {
        assert!(Parameters::parse(&"a&".repeat(QUERY_PARAMETERS_MAX)).is_ok());
        for query in ["a&".repeat(QUERY_PARAMETERS_MAX + 1), "a".repeat(QUERY_BYTES_MAX + 1)] {
            let refused = Parameters::parse(&query).unwrap_err();
            assert!(matches!(refused, SignatureError::TooLarge { .. }), "{refused}");
        }
    }

    #[test]
    fn a_parameter_of_the_signature_is_there_once() {
        let parameters = Parameters::parse("a=1&b=2&b=3&c=%ff").unwrap();
        assert_eq!(parameters.single("a"), Ok(Some("1".to_owned())));
        assert_eq!(parameters.single("A"), Ok(None));
        assert!(parameters.single("b").is_err() && parameters.single("c").is_err());
    }
}
