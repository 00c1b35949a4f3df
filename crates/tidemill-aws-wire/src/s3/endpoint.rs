//! Where a request points: a bucket by path (`/bucket/key`) or by host (`bucket.host`), and a key that is decoded exactly once.

use percent_encoding::percent_decode_str;

use super::fault::{S3Fault, S3FaultCode};
use crate::RequestHead;

/// The bytes of a key.
pub const KEY_BYTES_MAX: usize = 1_024;

/// What the gateway knows of itself.
#[derive(Debug, Clone, Copy)]
pub struct S3Endpoint<'e> {
    /// The host that clients are pointed at, without a port; none if the gateway does not know it.
    pub host: Option<&'e str>,
    /// The bucket that there is.
    pub bucket: &'e str,
}

/// A bucket, and a key in it or the bucket itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Address {
    pub bucket: String,
    pub key: Option<String>,
}

impl S3Address {
    pub fn read(head: &RequestHead<'_>, endpoint: S3Endpoint<'_>) -> Result<Self, S3Fault> {
        // Decoded before it is split: signatures are of the decoded path, so all spellings of one path must mean one key.
        let path = decode(head.path)?;
        let path = path.strip_prefix('/').unwrap_or(&path);
        let (first, rest) = path.split_once('/').unwrap_or((path, ""));
        let (bucket, key) = match endpoint.bucket_of_host(head, first) {
            Some(bucket) => (bucket.to_owned(), path.to_owned()),
            None => (first.to_owned(), rest.to_owned()),
        };
        if key.len() > KEY_BYTES_MAX {
            return Err(S3Fault::new(
                S3FaultCode::KeyTooLong,
                format!("Your key is too long: {} bytes, the limit is {KEY_BYTES_MAX}.", key.len()),
            ));
        }
        if bucket.is_empty() {
            return Err(S3Fault::not_implemented("A request without a bucket"));
        }
        Ok(Self { bucket, key: Some(key).filter(|key| !key.is_empty()) })
    }
}

impl S3Endpoint<'_> {
    /// The bucket before the host of the gateway. Without that host, what stands before `localhost`, or our own bucket before
    /// anything, unless the path names it too.
    fn bucket_of_host<'r>(&self, head: &RequestHead<'r>, first_segment: &str) -> Option<&'r str> {
        let host = head.header("host")?;
        let host = host.rsplit_once(':').map_or(host, |(name, port)| {
            if port.bytes().all(|byte| byte.is_ascii_digit()) { name } else { host }
        });
        let before = |suffix: &str| {
            let at = host.len().checked_sub(suffix.len() + 1)?;
            let (bucket, rest) = (host.get(..at)?, host.get(at + 1..)?);
            let dotted = host.as_bytes()[at] == b'.' && rest.eq_ignore_ascii_case(suffix);
            (dotted && !bucket.is_empty()).then_some(bucket)
        };
        if let Some(known) = self.host {
            return before(known);
        }
        before("localhost").or_else(|| {
            let rest = host.strip_prefix(self.bucket)?.strip_prefix('.')?;
            (!rest.is_empty() && first_segment != self.bucket).then(|| &host[..self.bucket.len()])
        })
    }
}

fn decode(part: &str) -> Result<String, S3Fault> {
    let not_utf8 = |_| S3Fault::new(S3FaultCode::InvalidUri, "Couldn't parse the specified URI.");
    String::from_utf8(percent_decode_str(part).collect()).map_err(not_utf8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(path: &str, host: &str, known: Option<&str>) -> Result<(String, Option<String>), S3FaultCode> {
        let headers = [("Host", host)];
        let head = RequestHead { method: "GET", path, query: "", headers: &headers };
        let address = S3Address::read(&head, S3Endpoint { host: known, bucket: "bucket" });
        address.map(|address| (address.bucket, address.key)).map_err(|fault| fault.code)
    }

    #[test]
    fn a_bucket_is_named_by_path_or_by_host() {
        for (path, host, known, bucket, key) in [
            ("/bucket", "localhost:7171", None, "bucket", None),
            ("/bucket/", "localhost:7171", None, "bucket", None),
            ("/bucket/a/b", "127.0.0.1:7171", None, "bucket", Some("a/b")),
            ("/other/a", "[::1]:7171", None, "other", Some("a")),
            ("/a/b", "bucket.localhost:7171", None, "bucket", Some("a/b")),
            ("/a", "other.localhost", None, "other", Some("a")),
            ("/", "bucket.mill.example", None, "bucket", None),
            ("/bucket/a", "bucket.mill.example", None, "bucket", Some("a")), // by path, on a host of the same name
            ("/a", "b.Mill.example:80", Some("mill.example"), "b", Some("a")),
            ("/b/a", "mill.example", Some("mill.example"), "b", Some("a")),
            ("/b/a", "windmill.example", Some("mill.example"), "b", Some("a")),
        ] {
            let expected = (bucket.to_owned(), key.map(str::to_owned));
            assert_eq!(read(path, host, known), Ok(expected), "{host}{path}");
        }
    }

    #[test]
    fn spellings_that_are_signed_alike_are_read_alike() {
        for host in ["localhost", "bucket.localhost", "bucket.mill.example", "mill.example"] {
            for known in [None, Some("mill.example")] {
                let expected = read("/bucket/key/a", host, known);
                for path in ["/%62ucket/key/a", "/bucket%2Fkey/a", "/bucket/key%2fa", "%2Fbucket/key/a"] {
                    assert_eq!(read(path, host, known), expected, "{path} at {host}");
                }
            }
        }
    }

    #[test]
    fn keys_are_decoded_once_and_have_bounds() {
        let longest = "k".repeat(KEY_BYTES_MAX);
        for (path, expected) in [
            ("/bucket/a%20b+c", Ok("a b+c")),
            ("/bucket/%2541", Ok("%41")),
            ("/bucket/a//b/../c", Ok("a//b/../c")),
            ("/bucket/%2Fa", Ok("/a")),
            ("/bucket/%C3%A9", Ok("é")),
            ("/bucket/%ff", Err(S3FaultCode::InvalidUri)),
            (&format!("/bucket/{longest}"), Ok(longest.as_str())),
            (&format!("/bucket/{longest}k"), Err(S3FaultCode::KeyTooLong)),
            ("/", Err(S3FaultCode::NotImplemented)),
        ] {
            let key = read(path, "localhost", None).map(|(_, key)| key.unwrap_or_default());
            assert_eq!(key, expected.map(str::to_owned), "{path}");
        }
    }
}
