//! What is checked beside the signature itself: dates, scope, headers, tokens, bodies.

use tidemill_aws_wire::signature::{
    AmzDate, PayloadHash, RequestSigner, SignatureCheck, SignatureClaim, SignatureError, WireRequest,
};

const SIGNER: RequestSigner<'static> =
    RequestSigner { access_key_id: "AKID", secret: "secret", region: "local", service: "sqs" };
const SIGNED_AT: u64 = 1_440_938_160; // 20150830T123600Z

type Headers<'h> = Vec<(&'h str, &'h [u8])>;

fn usual<'h>() -> Headers<'h> {
    vec![("host", b"localhost:7070"), ("x-amz-date", b"20150830T123600Z")]
}

/// Signs a request with these headers, changes it, and tells what is said of it at that time.
fn verdict(
    signer: &RequestSigner<'_>,
    headers: &Headers<'_>,
    change: impl FnOnce(&mut Headers<'_>),
    service: &str,
    now_secs: u64,
) -> Result<(), SignatureError> {
    let at = AmzDate::of_epoch_secs(SIGNED_AT);
    let request = WireRequest { method: "POST", path: "/", query: "", headers };
    let authorization = signer.authorization(&request, PayloadHash::of_body(b"body"), at)?;
    let mut headers = headers.clone();
    headers.push(("authorization", authorization.as_bytes()));
    change(&mut headers);
    let request = WireRequest { headers: &headers, ..request };
    let check = SignatureCheck { secret: SIGNER.secret, service, now_secs };
    SignatureClaim::of(&request)?.verify(&request, b"body", &check).map(|_| ())
}

fn unsigned(name: &str) -> Result<(), SignatureError> {
    Err(SignatureError::UnsignedHeader { name: name.to_owned() })
}

#[test]
fn a_request_is_good_for_fifteen_minutes_around_its_date() {
    for (now_secs, is_good) in [
        (SIGNED_AT, true),
        (SIGNED_AT + 900, true),
        (SIGNED_AT + 901, false),
        (SIGNED_AT - 900, true),
        (SIGNED_AT - 901, false),
        (0, false),
        (u64::MAX, false),
    ] {
        let found = verdict(&SIGNER, &usual(), |_| {}, "sqs", now_secs);
        match found {
            Ok(()) => assert!(is_good, "at {now_secs}"),
            Err(SignatureError::Skewed { .. }) => assert!(!is_good, "at {now_secs}"),
            Err(other) => panic!("at {now_secs}: {other}"),
        }
    }
}

#[test]
fn a_presigned_request_is_good_until_it_expires() {
    let signer = RequestSigner { service: "s3", ..SIGNER };
    let headers = [("host", &b"localhost:7070"[..])];
    let plain = WireRequest { method: "GET", path: "/bucket/key", query: "a=1", headers: &headers };
    let at = AmzDate::of_epoch_secs(SIGNED_AT);
    let query = signer.presigned_query(&plain, PayloadHash::Unsigned, at, 3_600).unwrap();
    let request = WireRequest { query: &query, ..plain };
    for (now_secs, expected) in [
        (SIGNED_AT, "good"),
        (SIGNED_AT + 3_600, "good"),
        (SIGNED_AT + 3_601, "expired"),
        (SIGNED_AT - 900, "good"),
        (SIGNED_AT - 901, "skewed"),
    ] {
        let check = SignatureCheck { secret: signer.secret, service: "s3", now_secs };
        let found = match SignatureClaim::of(&request).unwrap().verify_head(&request, &check) {
            Ok(_) => "good",
            Err(SignatureError::Expired { .. }) => "expired",
            Err(SignatureError::Skewed { .. }) => "skewed",
            Err(other) => panic!("at {now_secs}: {other}"),
        };
        assert_eq!(found, expected, "at {now_secs}");
    }
    let longer = query.replace("X-Amz-Expires=3600", "X-Amz-Expires=604800");
    let request = WireRequest { query: &longer, ..plain };
    let check = SignatureCheck { secret: signer.secret, service: "s3", now_secs: SIGNED_AT };
    let found = SignatureClaim::of(&request).unwrap().verify_head(&request, &check);
    assert_eq!(found.unwrap_err(), SignatureError::Wrong);
}

#[test]
fn headers_are_signed_or_refused() {
    for (signed, added, expected) in [
        (usual(), ("x-other", "1"), Ok(())),
        (usual(), ("x-amzn-trace-id", "1"), Ok(())),
        (usual(), ("X-Amz-Target", "AmazonSQS.SendMessage"), unsigned("x-amz-target")),
        (usual(), ("x-amz-content-sha256", "UNSIGNED-PAYLOAD"), Err(SignatureError::PayloadHashMalformed)),
        (vec![("x-amz-date", &b"20150830T123600Z"[..])], ("host", "localhost"), unsigned("host")),
        // A second value of a signed header changes what was signed.
        (usual(), ("host", "elsewhere"), Err(SignatureError::Wrong)),
        // Tokens are refused, signed or not.
        (usual(), ("X-Amz-Security-Token", "token"), Err(SignatureError::SessionToken)),
        // A `Date` stands in for `x-amz-date`.
        (vec![("host", &b"localhost"[..])], ("date", "Sun, 30 Aug 2015 12:36:00 GMT"), Ok(())),
        // Of another day than the scope.
        (
            vec![("host", &b"localhost"[..])],
            ("date", "Mon, 31 Aug 2015 12:36:00 GMT"),
            Err(SignatureError::ScopeDay {
                scoped: "20150830".to_owned(),
                requested: AmzDate::of_epoch_secs(SIGNED_AT + 86_400),
            }),
        ),
    ] {
        let add = |headers: &mut Headers<'_>| headers.push((added.0, added.1.as_bytes()));
        assert_eq!(verdict(&SIGNER, &signed, add, "sqs", SIGNED_AT), expected, "{added:?}");
    }
    let missing =
        verdict(&SIGNER, &usual(), |headers| headers.retain(|one| one.0 != "host"), "sqs", SIGNED_AT);
    assert_eq!(missing, Err(SignatureError::Wrong));
}

#[test]
fn a_signature_is_of_one_key_and_one_service() {
    for (signer, service, expected) in [
        (SIGNER, "sqs", Ok(())),
        (
            SIGNER,
            "dynamodb",
            Err(SignatureError::WrongService { scoped: "sqs".to_owned(), called: "dynamodb".to_owned() }),
        ),
        (RequestSigner { secret: "other", ..SIGNER }, "sqs", Err(SignatureError::Wrong)),
        (RequestSigner { region: "any-region-1", ..SIGNER }, "sqs", Ok(())),
    ] {
        assert_eq!(verdict(&signer, &usual(), |_| {}, service, SIGNED_AT), expected, "{service}");
    }
}

#[test]
fn a_body_that_is_not_the_signed_one_is_refused() {
    let hash = PayloadHash::of_body(b"body").to_text();
    let mut with_hash = usual();
    with_hash.push(("x-amz-content-sha256", hash.as_bytes()));
    for (service, headers, body, expected) in [
        ("sqs", usual(), &b"body"[..], Ok(())),
        // The hash of the body is part of what was signed.
        ("sqs", usual(), b"Body", Err(SignatureError::Wrong)),
        ("sqs", with_hash.clone(), b"body", Ok(())),
        ("sqs", with_hash.clone(), b"Body", Err(SignatureError::BodyMismatch)),
        ("s3", with_hash.clone(), b"body", Ok(())),
        ("s3", with_hash.clone(), b"Body", Err(SignatureError::BodyMismatch)),
        ("s3", usual(), b"body", Err(SignatureError::PayloadHashMissing)),
    ] {
        let signer = RequestSigner { service, ..SIGNER };
        let at = AmzDate::of_epoch_secs(SIGNED_AT);
        let plain = WireRequest { method: "POST", path: "/", query: "", headers: &headers };
        let authorization = signer.authorization(&plain, PayloadHash::of_body(b"body"), at).unwrap();
        let mut headers = headers.clone();
        headers.push(("authorization", authorization.as_bytes()));
        let request = WireRequest { headers: &headers, ..plain };
        let check = SignatureCheck { secret: signer.secret, service, now_secs: SIGNED_AT };
        let found = SignatureClaim::of(&request).unwrap().verify(&request, body, &check).map(|_| ());
        assert_eq!(found, expected, "{service}");
    }
}
