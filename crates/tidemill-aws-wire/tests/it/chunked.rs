//! Bodies in chunks: whole, cut anywhere, broken and forged.

use proptest::prelude::*;
use tidemill_aws_wire::checksum::{ChecksumAlgorithm, ChecksumError};
use tidemill_aws_wire::chunked::{
    ChunkDecoder, ChunkSignatures, ChunkedError, ChunkedHead, DecodedBody, SIZE_LINE_BYTES_MAX,
    TRAILER_LINE_BYTES_MAX,
};
use tidemill_aws_wire::signature::{AmzDate, CredentialScope, PayloadHash, SigningKey, WireRequest};

fn head(payload: PayloadHash, length: &str, trailer: Option<&str>) -> ChunkedHead {
    let mut headers = vec![("x-amz-decoded-content-length", length.as_bytes())];
    headers.extend(trailer.map(|name| ("x-amz-trailer", name.as_bytes())));
    let request = WireRequest { method: "PUT", path: "/", query: "", headers: &headers };
    ChunkedHead::of(&request, payload).unwrap()
}

fn chain() -> ChunkSignatures {
    let date = AmzDate::of_epoch_secs(1_440_938_160);
    let scope = CredentialScope { day: date.day(), region: "local".to_owned(), service: "s3".to_owned() };
    ChunkSignatures::new(SigningKey::derive("secret", &scope), date, scope, &[7; 32])
}

fn unsigned(length: &str, trailer: Option<&str>, body: &str) -> Result<DecodedBody, ChunkedError> {
    let head = head(PayloadHash::UnsignedChunks, length, trailer);
    ChunkDecoder::new(head, chain()).decode(body.as_bytes())
}

/// A body of signed chunks, with a trailer if there is a checksum.
fn signed(chunks: &[&[u8]], checksum: Option<&str>) -> Vec<u8> {
    let mut chain = chain();
    let mut body = Vec::new();
    for chunk in chunks.iter().chain([&&b""[..]]) {
        let signature = chain.sign_chunk(chunk);
        body.extend_from_slice(format!("{:x};chunk-signature={signature}\r\n", chunk.len()).as_bytes());
        body.extend_from_slice(chunk);
        body.extend_from_slice(if chunk.is_empty() { b"" } else { b"\r\n" });
    }
    if let Some(checksum) = checksum {
        let line = format!("x-amz-checksum-crc32:{checksum}");
        let signature = chain.sign_trailer(&format!("{line}\n"));
        body.extend_from_slice(format!("{line}\r\nx-amz-trailer-signature:{signature}\r\n").as_bytes());
    }
    body.extend_from_slice(b"\r\n");
    body
}

#[test]
fn chunks_that_are_not_signed_are_put_together() {
    let crc = Some("x-amz-checksum-crc32");
    let end = "x-amz-checksum-crc32:DUoRhQ==\r\n\r\n";
    for (length, trailer, body) in [
        ("11", None, "b\r\nhello world\r\n0\r\n\r\n".to_owned()),
        ("11", None, "5\r\nhello\r\n0006\r\n world\r\n0\r\n\r\n".to_owned()),
        ("11", crc, format!("B\r\nhello world\r\n0\r\n{end}")),
        ("11", crc, "b\r\nhello world\r\n0\r\nX-Amz-Checksum-CRC32: DUoRhQ== \r\n\r\n".to_owned()),
    ] {
        let decoded = unsigned(length, trailer, &body).unwrap();
        assert_eq!(decoded.bytes, b"hello world", "{body}");
        assert_eq!(decoded.checksum.is_some(), trailer.is_some());
    }
    assert_eq!(unsigned("0", None, "0\r\n\r\n").unwrap().bytes, b"");
}

#[test]
fn a_broken_frame_is_refused_with_the_reason() {
    let crc = Some("x-amz-checksum-crc32");
    let long_size = format!("{}b\r\n", "0".repeat(SIZE_LINE_BYTES_MAX));
    let long_trailer = format!("0\r\n{}", "x".repeat(TRAILER_LINE_BYTES_MAX + 3));
    for (length, trailer, body, expected) in [
        ("5", None, "", "does not hold the 5 bytes"),
        ("5", None, "5\r\nhel", "does not hold the 5 bytes"),
        ("5", None, "5\r\nhello\r\n", "does not hold the 5 bytes"),
        ("5", None, "5\r\nhello\r\n0\r\n", "does not hold the 5 bytes"),
        ("5", None, "4\r\nhell\r\n0\r\n\r\n", "does not hold the 5 bytes"),
        ("5", None, "6\r\nhello!\r\n0\r\n\r\n", "does not hold the 5 bytes"),
        ("5", None, "5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n", "does not hold the 5 bytes"),
        ("5", None, "ffffffffffffffff\r\nhello", "does not hold the 5 bytes"),
        ("5", None, "5\r\nhello!\r\n0\r\n\r\n", "longer than its size"),
        ("5", None, "5\r\nhelloX\n0\r\n\r\n", "longer than its size"),
        ("5", None, "5\nhello\r\n0\r\n\r\n", "does not end as it should"),
        ("5", None, "\r5\r\nhello\r\n0\r\n\r\n", "does not end as it should"),
        ("5", None, "hello", "does not hold the 5 bytes"),
        ("5", None, "hello\r\n", "is no number"),
        ("5", None, "\r\n", "is no number"),
        ("5", None, "5\r\nhello\r\n0\r\n\r\n\r\n", "bytes after its end"),
        ("5", None, &long_size, "longer than the limit of 128"),
        ("0", None, &long_trailer, "longer than the limit of 256"),
        ("0", None, "0\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n", "does not announce it"),
        ("0", crc, "0\r\nx-amz-checksum-sha1:AAAAAA==\r\n\r\n", "does not announce it"),
        ("0", crc, "0\r\n\r\n", "announces is missing"),
        ("0", crc, "0\r\nx-amz-checksum-crc32\r\n\r\n", "has no colon"),
        (
            "0",
            crc,
            "0\r\nx-amz-checksum-crc32:AAAAAA==\r\nx-amz-checksum-crc32:AAAAAA==\r\n\r\n",
            "is there twice",
        ),
        ("0", crc, "0\r\nx-amz-checksum-crc32:AAAA\r\n\r\n", "the trailer is not taken"),
        ("0", crc, "0\r\nx-amz-checksum-crc32:AAAAAQ==\r\n\r\n", "the trailer is not taken"),
    ] {
        let told = unsigned(length, trailer, body).unwrap_err().to_string();
        assert!(told.contains(expected), "{body:?}: {told}");
    }
}

#[test]
fn a_checksum_of_the_trailer_is_compared_in_every_algorithm() {
    for (algorithm, sum) in [
        (ChecksumAlgorithm::Crc32, "DUoRhQ=="),
        (ChecksumAlgorithm::Crc32c, "yZRlqg=="),
        (ChecksumAlgorithm::Crc64Nvme, "jSnVw/bqjr4="),
        (ChecksumAlgorithm::Sha1, "Kq5sNclPz7QV2+lfQIuc6R7oRu0="),
        (ChecksumAlgorithm::Sha256, "uU0nuZNNPgilLlLX2n2r+sSE7+N6U4DukIj3rOLvzek="),
    ] {
        let name = algorithm.header();
        for (text, expected) in [
            ("hello world", None),
            ("hello_world", Some(ChunkedError::Checksum(ChecksumError::Mismatch { header: name }))),
        ] {
            let body = format!("b\r\n{text}\r\n0\r\n{name}:{sum}\r\n\r\n");
            assert_eq!(unsigned("11", Some(name), &body).err(), expected, "{name}");
        }
    }
}

#[test]
fn signed_chunks_hold_together() {
    let crc = Some("x-amz-checksum-crc32");
    let plain = head(PayloadHash::SignedChunks, "11", None);
    let trailer = head(PayloadHash::SignedChunksTrailer, "11", crc);
    let text = |body: Vec<u8>| String::from_utf8(body).unwrap();
    let good = text(signed(&[b"hello", b" worl", b"d"], None));
    let with_trailer = text(signed(&[b"hello world"], Some("DUoRhQ==")));
    let lines: Vec<&str> = with_trailer.split_inclusive("\r\n").collect();
    let wrong = Some(ChunkedError::WrongSignature);
    let (first, rest) = good.split_at(good.find("5;chunk").unwrap() + 2 + 16 + 64 + 2 + 5 + 2);
    let (second, rest) = rest.split_at(first.len());
    for (head, body, expected) in [
        (plain, good.clone(), None),
        (trailer, with_trailer.clone(), None),
        (plain, good.replace("hello", "hullo"), wrong.clone()),
        // Chunks in another order.
        (plain, format!("{second}{first}{rest}"), wrong.clone()),
        // A chunk that was left out is found at the next one.
        (plain, format!("{first}{rest}"), wrong.clone()),
        (trailer, with_trailer.replace("DUoRhQ==", "DUoRhA=="), wrong.clone()),
        (trailer, lines[..4].concat() + "\r\n", Some(ChunkedError::Trailer("its signature is missing"))),
        (trailer, format!("{}{}{}\r\n", lines[..3].concat(), lines[4], lines[3]), wrong.clone()),
        (
            trailer,
            format!("{}{}\r\n", lines[..5].concat(), lines[3]),
            Some(ChunkedError::Trailer("something follows its signature")),
        ),
        (plain, "0\r\n\r\n".to_owned(), Some(ChunkedError::Malformed("a chunk has no signature"))),
    ] {
        let found = ChunkDecoder::new(head, chain()).decode(body.as_bytes());
        assert_eq!(found.err(), expected, "{body}");
    }
    // A server without keys takes any signature, but not any checksum.
    let changed = good.replace("hello", "hullo");
    assert_eq!(ChunkDecoder::unverified(plain).decode(changed.as_bytes()).unwrap().bytes, b"hullo world");
    let changed = with_trailer.replace("hello", "hullo");
    let mismatch = ChunkedError::Checksum(ChecksumError::Mismatch { header: "x-amz-checksum-crc32" });
    assert_eq!(ChunkDecoder::unverified(trailer).decode(changed.as_bytes()), Err(mismatch));
}

#[test]
fn nothing_is_taken_after_an_error() {
    let body = signed(&[b"hello world"], None);
    let mut decoder = ChunkDecoder::new(head(PayloadHash::SignedChunks, "11", None), chain());
    let mut bytes = Vec::new();
    let changed = String::from_utf8(body).unwrap().replace("hello", "hullo");
    assert_eq!(decoder.push(changed.as_bytes(), &mut bytes), Err(ChunkedError::WrongSignature));
    assert!(decoder.push(b"0\r\n\r\n", &mut bytes).is_err());
    assert!(decoder.finish().is_err());
}

proptest! {
    #[test]
    fn it_does_not_matter_how_a_body_is_cut(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..6),
        cut in 1_usize..50,
    ) {
        let chunks: Vec<&[u8]> = chunks.iter().map(|chunk| &**chunk).collect();
        let whole = chunks.concat();
        let body = signed(&chunks, None);
        let head = head(PayloadHash::SignedChunks, &whole.len().to_string(), None);
        let mut decoder = ChunkDecoder::new(head, chain());
        let mut bytes = Vec::new();
        for piece in body.chunks(cut) {
            prop_assert_eq!(decoder.push(piece, &mut bytes), Ok(()));
        }
        prop_assert_eq!(decoder.finish(), Ok(None));
        prop_assert_eq!(bytes, whole);
    }

    #[test]
    fn no_changed_byte_goes_unseen(place in any::<prop::sample::Index>(), change in 1_u8..) {
        let mut body = signed(&[b"hello", b" world"], Some("DUoRhQ=="));
        let place = place.index(body.len());
        body[place] ^= change;
        let head = head(PayloadHash::SignedChunksTrailer, "11", Some("x-amz-checksum-crc32"));
        // Names of trailers are taken in any case, and sizes too.
        if let Ok(decoded) = ChunkDecoder::new(head, chain()).decode(&body) {
            prop_assert_eq!(decoded.bytes, b"hello world");
            prop_assert!(change == 0x20 || body[place].is_ascii_whitespace(), "at {}", place);
        }
    }

    #[test]
    fn any_bytes_are_a_body_or_an_error(body in prop::collection::vec(any::<u8>(), 0..200), length in 0_u64..100) {
        let head = head(PayloadHash::UnsignedChunks, &length.to_string(), None);
        if let Ok(decoded) = ChunkDecoder::unverified(head).decode(&body) {
            prop_assert_eq!(decoded.bytes.len() as u64, length);
        }
    }
}
