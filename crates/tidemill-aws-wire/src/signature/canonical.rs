//! The canonical form of a request: what client and server both make of it, so that both sign the same bytes.

use percent_encoding::{AsciiSet, percent_decode_str, percent_encode};

use super::payload::{PayloadHash, S3};
use super::query::{Parameters, STRICT};
use super::{SignatureError, WireRequest};

/// A path keeps its slashes.
const PATH: &AsciiSet = &STRICT.remove(b'/');

/// The request in the form that is hashed and signed. Without a value for each signed header no signature can be right.
pub(super) fn canonical_request<N: AsRef<str>>(
    request: &WireRequest<'_>,
    parameters: &Parameters,
    signed_headers: &[N],
    payload: PayloadHash,
    service: &str,
) -> Result<Vec<u8>, SignatureError> {
    let mut canonical = Vec::with_capacity(1_024);
    for line in [request.method, &canonical_path(request.path, service), &parameters.canonical()] {
        canonical.extend_from_slice(line.as_bytes());
        canonical.push(b'\n');
    }
    debug_assert!(signed_headers.is_sorted_by_key(AsRef::as_ref), "names are sorted");
    for name in signed_headers.iter().map(AsRef::as_ref) {
        canonical.extend_from_slice(name.as_bytes());
        canonical.push(b':');
        push_values(&mut canonical, request.values(name)).ok_or(SignatureError::Wrong)?;
        canonical.push(b'\n');
    }
    canonical.push(b'\n');
    canonical.extend_from_slice(joined(signed_headers).as_bytes());
    canonical.push(b'\n');
    canonical.extend_from_slice(payload.to_text().as_bytes());
    Ok(canonical)
}

/// Names of signed headers as a signature lists them.
pub(super) fn joined<N: AsRef<str>>(signed_headers: &[N]) -> String {
    signed_headers.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(";")
}

/// S3 encodes a path once and leaves it as it is, since keys may hold anything. Others resolve dots and repeated slashes,
/// and encode what is encoded already once more.
fn canonical_path(path: &str, service: &str) -> String {
    if service == S3 {
        let decoded: Vec<u8> = percent_decode_str(path).collect();
        let encoded = percent_encode(&decoded, PATH).to_string();
        return if encoded.is_empty() { "/".to_owned() } else { encoded };
    }
    percent_encode(normalized(path).as_bytes(), PATH).to_string()
}

/// Without empty segments and dots; a slash at the end stays.
fn normalized(path: &str) -> String {
    let mut kept = Vec::new();
    for segment in path.split('/') {
        match segment {
            "" | "." => {}
            ".." => {
                kept.pop();
            }
            name => kept.push(name),
        }
    }
    let end = if path.ends_with('/') && !kept.is_empty() { "/" } else { "" };
    format!("/{}{end}", kept.join("/"))
}

/// All values of one header, joined by commas, each without blanks around it and with single ones inside.
fn push_values<'v>(into: &mut Vec<u8>, values: impl Iterator<Item = &'v [u8]>) -> Option<()> {
    let mut found = None;
    for value in values {
        if found.is_some() {
            into.push(b',');
        }
        found = Some(());
        let words = value.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
        for (word, place) in words.zip(0..) {
            if place > 0 {
                into.push(b' ');
            }
            into.extend_from_slice(word);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_encoded_by_the_rules_of_its_service() {
        for (path, of_s3, of_others) in [
            ("", "/", "/"),
            ("/", "/", "/"),
            ("//", "//", "/"),
            ("/a//b/", "/a//b/", "/a/b/"),
            ("/a/./b/../c", "/a/./b/../c", "/a/c"),
            ("/../..", "/../..", "/"),
            ("/a/..", "/a/..", "/"),
            ("/a/../", "/a/../", "/"),
            ("/a%20b", "/a%20b", "/a%2520b"),
            ("/a b", "/a%20b", "/a%20b"),
            ("/a+b", "/a%2Bb", "/a%2Bb"),
            ("/%7E%2b", "/~%2B", "/%257E%252b"),
            ("/100%", "/100%25", "/100%25"),
            ("/%c3%bc", "/%C3%BC", "/%25c3%25bc"),
            ("/ü", "/%C3%BC", "/%C3%BC"),
            ("/a%2Fb", "/a/b", "/a%252Fb"),
        ] {
            assert_eq!(canonical_path(path, S3), of_s3, "{path} of s3");
            assert_eq!(canonical_path(path, "sqs"), of_others, "{path} of others");
        }
    }

    #[test]
    fn values_of_headers_are_trimmed_folded_and_joined() {
        for (values, expected) in [
            (vec![], None),
            (vec![""], Some("")),
            (vec!["  a   b \t c  "], Some("a b c")),
            (vec!["4", " 1 ", "", "2"], Some("4,1,,2")),
            (vec!["\"a   b\""], Some("\"a b\"")),
            (vec!["grüße"], Some("grüße")),
        ] {
            let mut into = Vec::new();
            let found = push_values(&mut into, values.iter().map(|value| value.as_bytes()));
            assert_eq!(found.map(|()| &*into), expected.map(str::as_bytes), "{values:?}");
        }
    }
}
