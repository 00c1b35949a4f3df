//! Signatures that AWS publishes in its documentation and its test suite.

use tidemill_aws_wire::chunked::{ChunkDecoder, ChunkedHead};
use tidemill_aws_wire::signature::{
    AcceptedSignature, AmzDate, PayloadHash, RequestSigner, SignatureCheck, SignatureClaim, SignatureError,
    WireRequest,
};

/// The key of the test suite, for a service that is called `service`.
const SUITE: RequestSigner<'static> = RequestSigner {
    access_key_id: "AKIDEXAMPLE",
    secret: "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
    region: "us-east-1",
    service: "service",
};

/// The key of the examples of S3.
const EXAMPLES: RequestSigner<'static> = RequestSigner {
    access_key_id: "AKIAIOSFODNN7EXAMPLE",
    secret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    region: "us-east-1",
    service: "s3",
};

const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// Signs a request, compares with what AWS says, and verifies it.
fn check(
    signer: &RequestSigner<'_>,
    date: &str,
    request: &WireRequest<'_>,
    payload: PayloadHash,
    expected: &str,
) -> Result<AcceptedSignature, SignatureError> {
    let at = AmzDate::parse(date).unwrap();
    let authorization = signer.authorization(request, payload, at).unwrap();
    let signature = authorization.rsplit_once("Signature=").unwrap().1;
    assert_eq!(signature, expected, "{} {}", request.method, request.path);
    let mut headers = request.headers.to_vec();
    headers.push(("Authorization", authorization.as_bytes()));
    let request = WireRequest { headers: &headers, ..*request };
    let check =
        SignatureCheck { secret: signer.secret, service: signer.service, now_secs: at.epoch_secs() + 60 };
    let claim = SignatureClaim::of(&request).unwrap();
    assert_eq!(claim.access_key_id(), signer.access_key_id);
    if signer.service == "s3" {
        claim.verify_head(&request, &check)
    } else {
        claim.verify(&request, b"", &check)
    }
}

#[test]
fn the_test_suite_of_signature_version_4_comes_out() {
    let host = ("Host", &b"example.amazonaws.com"[..]);
    let date = ("X-Amz-Date", &b"20150830T123600Z"[..]);
    for (method, path, query, more, expected) in [
        // get-vanilla
        ("GET", "/", "", vec![], "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        // get-vanilla-empty-query-key
        (
            "GET",
            "/",
            "Param1=value1",
            vec![],
            "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb",
        ),
        // get-vanilla-query-order-key-case
        (
            "GET",
            "/",
            "Param2=value2&Param1=value1",
            vec![],
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
        // get-header-value-multiline has a form that HTTP no longer has; these are get-header-key-duplicate,
        // get-header-value-order and get-header-value-trim.
        (
            "GET",
            "/",
            "",
            vec![("My-Header1", "value2"), ("My-Header1", "value2"), ("My-Header1", "value1")],
            "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea",
        ),
        (
            "GET",
            "/",
            "",
            vec![
                ("My-Header1", "value4"),
                ("My-Header1", "value1"),
                ("My-Header1", "value3"),
                ("My-Header1", "value2"),
            ],
            "08c7e5a9acfcfeb3ab6b2185e75ce8b1deb5e634ec47601a50643f830c755c01",
        ),
        (
            "GET",
            "/",
            "",
            vec![("My-Header1", " value1"), ("My-Header2", " \"a   b   c\"")],
            "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
        ),
        // post-vanilla
        ("POST", "/", "", vec![], "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b"),
        // normalize-path: get-relative, get-relative-relative, get-slash, get-slashes, get-slash-dot-slash
        (
            "GET",
            "/example/..",
            "",
            vec![],
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
        ),
        (
            "GET",
            "/example1/example2/../..",
            "",
            vec![],
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
        ),
        ("GET", "//", "", vec![], "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        ("GET", "/./", "", vec![], "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"),
        (
            "GET",
            "//example//",
            "",
            vec![],
            "9a624bd73a37c9a373b5312afbebe7a714a789de108f0bdfe846570885f57e84",
        ),
    ] {
        let mut headers = vec![host];
        headers.extend(more.iter().map(|(name, value)| (*name, value.as_bytes())));
        headers.push(date);
        let request = WireRequest { method, path, query, headers: &headers };
        let payload = PayloadHash::of_body(b"");
        check(&SUITE, "20150830T123600Z", &request, payload, expected).unwrap();
    }
}

#[test]
fn the_examples_of_s3_come_out() {
    let host = ("Host", "examplebucket.s3.amazonaws.com");
    let date = ("x-amz-date", "20130524T000000Z");
    let empty = ("x-amz-content-sha256", EMPTY);
    let welcome = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
    for (method, path, query, headers, expected) in [
        (
            "GET",
            "/test.txt",
            "",
            vec![host, ("Range", "bytes=0-9"), empty, date],
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            "PUT",
            "/test$file.text",
            "",
            vec![
                host,
                ("Date", "Fri, 24 May 2013 00:00:00 GMT"),
                date,
                ("x-amz-storage-class", "REDUCED_REDUNDANCY"),
                ("x-amz-content-sha256", welcome),
            ],
            "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        ),
        (
            "GET",
            "/",
            "lifecycle",
            vec![host, empty, date],
            "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
        ),
        (
            "GET",
            "/",
            "max-keys=2&prefix=J",
            vec![host, empty, date],
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ] {
        let sent = headers.iter().find(|(name, _)| *name == "x-amz-content-sha256").unwrap().1;
        let payload = PayloadHash::parse(sent).unwrap();
        let headers: Vec<_> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
        let request = WireRequest { method, path, query, headers: &headers };
        let accepted = check(&EXAMPLES, "20130524T000000Z", &request, payload, expected).unwrap();
        let body: &[u8] = if sent == welcome { b"Welcome to Amazon S3." } else { b"" };
        assert_eq!(accepted.payload().check(body), Ok(()));
        assert_eq!(accepted.payload().check(b"other"), Err(SignatureError::BodyMismatch));
    }
}

#[test]
fn the_presigned_example_of_s3_comes_out() {
    let headers = [("Host", &b"examplebucket.s3.amazonaws.com"[..])];
    let plain = WireRequest { method: "GET", path: "/test.txt", query: "", headers: &headers };
    let at = AmzDate::parse("20130524T000000Z").unwrap();
    let query = EXAMPLES.presigned_query(&plain, PayloadHash::Unsigned, at, 86_400).unwrap();
    let expected = "X-Amz-Signature=aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
    assert!(query.ends_with(expected), "{query}");
    let request = WireRequest { query: &query, ..plain };
    let now_secs = at.epoch_secs() + 86_400;
    let check = SignatureCheck { secret: EXAMPLES.secret, service: "s3", now_secs };
    let accepted = SignatureClaim::of(&request).unwrap().verify_head(&request, &check).unwrap();
    assert_eq!(accepted.payload(), PayloadHash::Unsigned);
}

/// The frame of the two chunks of the examples, 64 KiB and 1 KiB of `a`, and the end.
fn example_body(signatures: [&str; 3], end: &str) -> Vec<u8> {
    let mut body = Vec::new();
    for (size, signature) in [65_536, 1_024, 0].into_iter().zip(signatures) {
        body.extend_from_slice(format!("{size:x};chunk-signature={signature}\r\n").as_bytes());
        body.resize(body.len() + size, b'a');
        if size > 0 {
            body.extend_from_slice(b"\r\n");
        }
    }
    body.extend_from_slice(end.as_bytes());
    body
}

#[test]
fn the_example_of_signed_chunks_comes_out() {
    let headers = [
        ("Host", &b"s3.amazonaws.com"[..]),
        ("x-amz-date", b"20130524T000000Z"),
        ("x-amz-storage-class", b"REDUCED_REDUNDANCY"),
        ("x-amz-content-sha256", b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD"),
        ("Content-Encoding", b"aws-chunked"),
        ("x-amz-decoded-content-length", b"66560"),
        ("Content-Length", b"66824"),
    ];
    let request =
        WireRequest { method: "PUT", path: "/examplebucket/chunkObject.txt", query: "", headers: &headers };
    let payload = PayloadHash::SignedChunks;
    let seed = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";
    let accepted = check(&EXAMPLES, "20130524T000000Z", &request, payload, seed).unwrap();
    let head = ChunkedHead::of(&request, accepted.payload()).unwrap();
    let body = example_body(
        [
            "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
            "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
            "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
        ],
        "\r\n",
    );
    assert_eq!(body.len(), 66_824);
    let decoded = ChunkDecoder::new(head, accepted.chunk_signatures()).decode(&body).unwrap();
    assert_eq!(decoded.bytes, vec![b'a'; 66_560]);
}

#[test]
fn the_example_of_signed_chunks_with_a_trailer_comes_out() {
    let headers = [
        ("Host", &b"s3.amazonaws.com"[..]),
        ("x-amz-date", b"20130524T000000Z"),
        ("x-amz-storage-class", b"REDUCED_REDUNDANCY"),
        ("x-amz-content-sha256", b"STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER"),
        ("Content-Encoding", b"aws-chunked"),
        ("x-amz-decoded-content-length", b"66560"),
        ("x-amz-trailer", b"x-amz-checksum-crc32c"),
    ];
    let request =
        WireRequest { method: "PUT", path: "/examplebucket/chunkObject.txt", query: "", headers: &headers };
    let payload = PayloadHash::SignedChunksTrailer;
    let seed = "106e2a8a18243abcf37539882f36619c00e2dfc72633413f02d3b74544bfeb8e";
    let accepted = check(&EXAMPLES, "20130524T000000Z", &request, payload, seed).unwrap();
    let head = ChunkedHead::of(&request, accepted.payload()).unwrap();
    let body = example_body(
        [
            "b474d8862b1487a5145d686f57f013e54db672cee1c953b3010fb58501ef5aa2",
            "1c1344b170168f8e65b41376b44b20fe354e373826ccbbe2c1d40a8cae51e5c7",
            "2ca2aba2005185cf7159c6277faf83795951dd77a3a99e6e65d5c9f85863f992",
        ],
        "x-amz-checksum-crc32c:sOO8/Q==\r\n\
         x-amz-trailer-signature:d81f82fc3505edab99d459891051a732e8730629a2e4a59689829ca17fe2e435\r\n\r\n",
    );
    let decoded = ChunkDecoder::new(head, accepted.chunk_signatures()).decode(&body).unwrap();
    assert_eq!(decoded.bytes, vec![b'a'; 66_560]);
    assert_eq!(decoded.checksum.unwrap().to_base64(), "sOO8/Q==");
}
