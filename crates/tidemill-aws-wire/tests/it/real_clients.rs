//! Requests that botocore signed, in its own code and in the C of awscrt. `tests/fixtures/signed_requests.py` made them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use tidemill_aws_wire::checksum::ExpectedChecksum;
use tidemill_aws_wire::chunked::{ChunkDecoder, ChunkedHead};
use tidemill_aws_wire::signature::{SignatureCheck, SignatureClaim, SignatureError, WireRequest};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SignedRequests {
    access_key_id: String,
    secret: String,
    now: u64,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    name: String,
    service: String,
    method: String,
    path: String,
    query: String,
    headers: Vec<(String, String)>,
    body: String,
}

fn signed_requests() -> SignedRequests {
    serde_json::from_str(include_str!("../fixtures/signed_requests.json")).unwrap()
}

impl Case {
    fn with_request<T>(&self, then: impl FnOnce(&WireRequest<'_>, &[u8]) -> T) -> T {
        let headers: Vec<_> = self.headers.iter().map(|(name, value)| (&**name, value.as_bytes())).collect();
        let request =
            WireRequest { method: &self.method, path: &self.path, query: &self.query, headers: &headers };
        then(&request, &STANDARD.decode(&self.body).unwrap())
    }
}

#[test]
fn what_real_clients_sign_is_accepted() {
    let all = signed_requests();
    assert!(all.cases.len() > 60, "only {} cases", all.cases.len());
    for case in &all.cases {
        let check = SignatureCheck { secret: &all.secret, service: &case.service, now_secs: all.now };
        case.with_request(|request, body| {
            let claim = SignatureClaim::of(request).unwrap();
            assert_eq!(claim.access_key_id(), all.access_key_id, "{}", case.name);
            let accepted = claim.verify(request, body, &check);
            let accepted = accepted.unwrap_or_else(|error| panic!("{}: {error}", case.name));
            if accepted.payload().is_chunked() {
                let head = ChunkedHead::of(request, accepted.payload()).unwrap();
                let decoded = ChunkDecoder::new(head, accepted.chunk_signatures()).decode(body).unwrap();
                assert_eq!(decoded.bytes.len() as u64, head.decoded_length(), "{}", case.name);
                assert!(decoded.bytes.starts_with(b"hello world"), "{}", case.name);
                assert!(decoded.checksum.is_some(), "{}", case.name);
            }
            for checksum in ExpectedChecksum::of_headers(request.headers.iter().copied()).unwrap() {
                assert_eq!(checksum.check(body), Ok(()), "{}", case.name);
            }
        });
    }
}

#[test]
fn what_was_changed_on_its_way_is_refused() {
    let all = signed_requests();
    for case in &all.cases {
        let check = SignatureCheck { secret: &all.secret, service: &case.service, now_secs: all.now };
        case.with_request(|request, body| {
            let refused = |what: &str, request: &WireRequest<'_>, check: &SignatureCheck<'_>, body: &[u8]| {
                let found = SignatureClaim::of(request).and_then(|claim| claim.verify(request, body, check));
                assert!(found.is_err(), "{}: {what} was changed", case.name);
                found.unwrap_err()
            };
            let wrong = SignatureError::Wrong;
            let other = SignatureCheck { secret: "other", ..check };
            assert_eq!(refused("the secret", request, &other, body), wrong);
            let path = format!("{}/x", request.path);
            assert_eq!(refused("the path", &WireRequest { path: &path, ..*request }, &check, body), wrong);
            let query = format!("{}&x", request.query);
            assert_eq!(refused("the query", &WireRequest { query: &query, ..*request }, &check, body), wrong);
            let method = WireRequest { method: "DELETE", ..*request };
            assert_eq!(refused("the method", &method, &check, body), wrong);
            let mut headers = request.headers.to_vec();
            let host = headers.iter().position(|(name, _)| name.eq_ignore_ascii_case("host")).unwrap();
            headers[host].1 = b"elsewhere";
            let host = WireRequest { headers: &headers, ..*request };
            assert_eq!(refused("the host", &host, &check, body), wrong);
            let mut headers = request.headers.to_vec();
            headers.push(("x-amz-meta-more", b"x"));
            let more = WireRequest { headers: &headers, ..*request };
            let unsigned = SignatureError::UnsignedHeader { name: "x-amz-meta-more".to_owned() };
            assert_eq!(refused("a header", &more, &check, body), unsigned);
            let is_signed = SignatureClaim::of(request).unwrap().payload(request, &case.service).unwrap();
            if is_signed.is_none_or(|payload| payload.check(b"another body").is_err()) {
                refused("the body", request, &check, b"another body");
            }
        });
    }
}
