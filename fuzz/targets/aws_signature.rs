//! Signed requests: any bytes are a request that is taken or refused. What is signed here is taken, and refused once its
//! body, its signature or the secret is another. A chunked body is the same however it is cut.
//!
//! An input is a request as HTTP writes it: a line with method and address, headers, an empty line, the body.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tidemill_aws_wire::checksum::ExpectedChecksum;
use tidemill_aws_wire::chunked::{ChunkDecoder, ChunkedHead};
use tidemill_aws_wire::signature::{
    AmzDate, PayloadHash, RequestSigner, SignatureCheck, SignatureClaim, SignatureError, WireRequest,
};

const SIGNER: RequestSigner<'static> = RequestSigner {
    access_key_id: "AKIAIOSFODNN7EXAMPLE",
    secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    region: "us-east-1",
    service: "s3",
};
const DATE: &str = "20130524T000000Z";
const NOW_SECS: u64 = 1_369_353_600;
/// What the second half adds or replaces.
const OURS: [&str; 5] =
    ["authorization", "host", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token"];

fuzz_target!(|bytes: &[u8]| {
    let (head, body) = split(bytes, b"\n\n");
    let Ok(head) = std::str::from_utf8(head) else { return };
    let mut lines = head.lines();
    let (method, address) = lines.next().unwrap_or_default().split_once(' ').unwrap_or(("GET", "/"));
    let (path, query) = address.split_once('?').unwrap_or((address, ""));
    let headers: Vec<(&str, &[u8])> =
        lines.filter_map(|line| line.split_once(':')).map(|(name, value)| (name, value.as_bytes())).collect();
    let request = WireRequest { method, path, query, headers: &headers };
    judge(&request, body);
    round_trip(&request, body, "s3");
    round_trip(&request, body, "sqs");
});

fn split<'b>(bytes: &'b [u8], by: &[u8]) -> (&'b [u8], &'b [u8]) {
    let at = bytes.windows(by.len()).position(|window| window == by);
    at.map_or((bytes, &[]), |at| (&bytes[..at], &bytes[at + by.len()..]))
}

/// Whatever is said of the request, nothing panics.
fn judge(request: &WireRequest<'_>, body: &[u8]) {
    let _ = ExpectedChecksum::of_headers(request.headers.iter().copied());
    for form in ["STREAMING-UNSIGNED-PAYLOAD-TRAILER", "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"] {
        let payload = PayloadHash::parse(form).expect("it is a form");
        if let Ok(head) = ChunkedHead::of(request, payload) {
            cut_anywhere(head, body);
        }
    }
    let Ok(claim) = SignatureClaim::of(request) else { return };
    for service in ["s3", "sqs"] {
        let check = SignatureCheck { secret: SIGNER.secret, service, now_secs: NOW_SECS };
        let _ = claim.verify(request, body, &check);
        let Ok(accepted) = claim.verify_head(request, &check) else { continue };
        if let Ok(head) = ChunkedHead::of(request, accepted.payload()) {
            let _ = ChunkDecoder::new(head, accepted.chunk_signatures()).decode(body);
        }
    }
}

fn cut_anywhere(head: ChunkedHead, body: &[u8]) {
    let whole = ChunkDecoder::unverified(head).decode(body);
    let mut decoder = ChunkDecoder::unverified(head);
    let mut decoded = Vec::new();
    let pushed = body.chunks(3).try_for_each(|piece| decoder.push(piece, &mut decoded));
    assert!(decoded.len() as u64 <= head.decoded_length());
    let in_pieces = pushed.and_then(|()| decoder.finish());
    assert_eq!(whole.is_ok(), in_pieces.is_ok());
    if let Ok(whole) = whole {
        assert_eq!(whole.bytes, decoded);
    }
}

/// Signs the request with its own path, query and headers.
fn round_trip(request: &WireRequest<'_>, body: &[u8], service: &str) {
    let payload = PayloadHash::of_body(body);
    let hash = payload.to_text();
    let is_name = |name: &str| {
        !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let is_ours = |name: &str| OURS.iter().any(|ours| ours.eq_ignore_ascii_case(name));
    let mut headers = request.headers.to_vec();
    headers.retain(|(name, _)| is_name(name) && !is_ours(name));
    headers.extend([("Host", &b"localhost"[..]), ("X-Amz-Date", DATE.as_bytes())]);
    headers.push(("X-Amz-Content-Sha256", hash.as_bytes()));
    let plain = WireRequest { headers: &headers, ..*request };
    // A query that has a signature already, or something that is too large.
    if !matches!(SignatureClaim::of(&plain), Err(SignatureError::Missing)) {
        return;
    }
    let signer = RequestSigner { service, ..SIGNER };
    let at = AmzDate::parse(DATE).expect("it is a date");
    let Ok(authorization) = signer.authorization(&plain, payload, at) else { return };
    let verdict = |authorization: &str, body: &[u8], secret: &str| {
        let mut headers = headers.clone();
        headers.push(("Authorization", authorization.as_bytes()));
        let request = WireRequest { headers: &headers, ..plain };
        let check = SignatureCheck { secret, service, now_secs: NOW_SECS };
        SignatureClaim::of(&request)?.verify(&request, body, &check).map(|_| ())
    };
    match verdict(&authorization, body, SIGNER.secret) {
        Ok(()) => {}
        Err(SignatureError::TooLarge { .. } | SignatureError::SessionToken) => return,
        Err(error) => panic!("a signed request was refused: {error}"),
    }
    assert_eq!(verdict(&authorization, body, "another secret"), Err(SignatureError::Wrong));
    let mut other = body.to_vec();
    match other.first_mut() {
        Some(first) => *first ^= 1,
        None => other.push(0),
    }
    assert_eq!(verdict(&authorization, &other, SIGNER.secret), Err(SignatureError::BodyMismatch));
    let (before, last) = authorization.split_at(authorization.len() - 1);
    let flipped = format!("{before}{}", if last == "0" { "1" } else { "0" });
    assert_eq!(verdict(&flipped, body, SIGNER.secret), Err(SignatureError::Wrong));
}
