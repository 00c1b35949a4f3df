//! Requests of S3 as botocore sends them.

use std::collections::BTreeMap;

use tidemill_aws_wire::RequestHead;
use tidemill_aws_wire::call::AwsCall;
use tidemill_aws_wire::s3::{
    ByteRange, NewObject, ObjectVerdict, S3Endpoint, S3Fault, S3FaultCode, S3Operation, S3Request,
    UploadedPart, read_uploaded_parts,
};

use crate::fixture::Fixture;

const ENDPOINT: S3Endpoint<'_> = S3Endpoint { host: None, bucket: "bucket" };

fn fixture(name: &str) -> Fixture {
    let mut fixtures = Fixture::current().into_iter();
    fixtures.find(|fixture| fixture.scope == "s3" && fixture.name == name).expect("a request of this name")
}

fn named(name: &str) -> Result<S3Operation, S3Fault> {
    let fixture = fixture(name);
    assert_eq!(fixture.call(), Ok(AwsCall::S3));
    let request = fixture.with_head(|head| S3Request::read(head, ENDPOINT))?;
    assert_eq!(request.bucket, "bucket", "{name}");
    Ok(request.operation)
}

fn key() -> String {
    "a".to_owned()
}

#[test]
fn objects_are_put_with_what_is_said_of_them() {
    let Ok(S3Operation::PutObject { key, object, content_md5: None, .. }) = named("put") else {
        panic!("a put")
    };
    assert_eq!(key, "events/req 1+2/é%41-payload.json");
    let metadata = BTreeMap::from([("task".to_owned(), "t1".to_owned())]);
    assert_eq!(object, NewObject { content_type: Some("application/json".to_owned()), metadata });
    let Ok(S3Operation::PutObject { conditions, .. }) = named("put once") else { panic!("a put") };
    assert_eq!(conditions.judge(None, false), ObjectVerdict::Go);
    assert_eq!(conditions.judge(Some("\"x\""), false), ObjectVerdict::PreconditionFailed);
}

#[test]
fn objects_are_read_whole_or_in_part_by_path_or_by_host() {
    let Ok(S3Operation::GetObject { key, range, .. }) = named("get") else { panic!("a get") };
    assert_eq!(key, "task/logs/req-1/a//b.txt");
    assert_eq!(range, Some(ByteRange::Suffix { length: 5 }));
    let Ok(S3Operation::GetObject { key, range: None, .. }) = named("host style") else { panic!("a get") };
    assert_eq!(key, "a b");
    assert!(matches!(named("head"), Ok(S3Operation::HeadObject { .. })));
}

#[test]
fn lists_and_buckets_are_told_apart() {
    let Ok(S3Operation::ListObjects(list)) = named("list objects") else { panic!("a list") };
    assert_eq!((list.prefix.as_str(), list.delimiter, list.keys_max), ("", None, 1_000));
    let Ok(S3Operation::ListObjects(list)) = named("list page") else { panic!("a list") };
    assert_eq!((list.prefix.as_str(), list.delimiter.as_deref(), list.keys_max), ("task/ü+", Some("/"), 7));
    assert_eq!(list.after(), Some("task/a"));
    assert_eq!(named("head bucket"), Ok(S3Operation::HeadBucket));
    assert_eq!(named("location"), Ok(S3Operation::GetBucketLocation));
}

#[test]
fn uploads_come_in_parts() {
    let big = || "big".to_owned();
    assert_eq!(
        named("part"),
        Ok(S3Operation::UploadPart {
            key: big(),
            upload_id: "u/1".to_owned(),
            part_number: 2,
            content_md5: None
        })
    );
    assert!(matches!(named("upload"), Ok(S3Operation::CreateMultipartUpload { .. })));
    let upload_id = || "u".to_owned();
    assert_eq!(
        named("complete"),
        Ok(S3Operation::CompleteMultipartUpload {
            key: big(),
            upload_id: upload_id(),
            conditions: <_>::default()
        })
    );
    assert_eq!(named("abort"), Ok(S3Operation::AbortMultipartUpload { key: big(), upload_id: upload_id() }));
    let part = |part_number, etag: &str| UploadedPart { part_number, etag: etag.to_owned() };
    assert_eq!(
        read_uploaded_parts(fixture("complete").body.as_bytes()),
        Ok(vec![part(1, "a1"), part(2, "b2")])
    );
}

#[test]
fn an_upload_is_completed_on_the_conditions_of_its_request() {
    for (name, value, over_nothing, over_another) in [
        ("If-None-Match", "*", ObjectVerdict::Go, ObjectVerdict::PreconditionFailed),
        ("If-Match", "\"x\"", ObjectVerdict::PreconditionFailed, ObjectVerdict::Go),
    ] {
        let headers = [(name, value)];
        let head = RequestHead { method: "POST", path: "/bucket/a", query: "uploadId=u", headers: &headers };
        let request = S3Request::read(&head, ENDPOINT).unwrap();
        let S3Operation::CompleteMultipartUpload { conditions, .. } = request.operation else {
            panic!("{request:?}")
        };
        assert_eq!(conditions.judge(None, false), over_nothing, "{name}: {value}");
        assert_eq!(conditions.judge(Some("\"x\""), false), over_another, "{name}: {value}");
    }
}

#[test]
fn what_is_not_served_is_not_implemented() {
    for name in ["get version", "delete", "copy", "list old"] {
        assert_eq!(named(name).map_err(|fault| fault.code), Err(S3FaultCode::NotImplemented), "{name}");
    }
    for (method, path, query) in [
        ("GET", "/", ""),
        ("PUT", "/bucket", ""),
        ("DELETE", "/bucket", ""),
        ("GET", "/bucket", "versions"),
        ("GET", "/bucket", "location&policy"),
        ("GET", "/bucket/a", "acl"),
        ("GET", "/bucket/a", "uploadId=u"),
        ("POST", "/bucket/a", "select&select-type=2"),
        ("PATCH", "/bucket/a", ""),
    ] {
        let head = RequestHead { method, path, query, headers: &[] };
        let read = S3Request::read(&head, ENDPOINT).map_err(|fault| fault.code);
        assert_eq!(read, Err(S3FaultCode::NotImplemented), "{method} {path}?{query}");
    }
}

#[test]
fn parameters_of_signatures_and_sdks_mean_nothing() {
    let query = "x-id=GetObject&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=ff";
    let head = RequestHead { method: "GET", path: "/bucket/a", query, headers: &[] };
    let expected = S3Operation::GetObject { key: key(), range: None, conditions: <_>::default() };
    assert_eq!(S3Request::read(&head, ENDPOINT).map(|request| request.operation), Ok(expected));
}

#[test]
fn headers_of_writes_are_checked() {
    for (name, value, code) in [
        ("Content-MD5", "1B2M2Y8AsgTpgAmY7PhCfg==", None),
        ("Content-MD5", "AAAA", Some(S3FaultCode::InvalidDigest)),
        ("Content-MD5", "%", Some(S3FaultCode::InvalidDigest)),
        ("Content-Length", "67108864", None),
        ("Content-Length", "67108865", Some(S3FaultCode::EntityTooLarge)),
        ("X-Amz-Decoded-Content-Length", "67108865", Some(S3FaultCode::EntityTooLarge)),
        ("x-amz-tagging", "a=b", Some(S3FaultCode::NotImplemented)),
        ("If-Unmodified-Since", "Thu, 01 Jan 1970 00:00:00 GMT", Some(S3FaultCode::NotImplemented)),
    ] {
        let headers = [(name, value)];
        let head = RequestHead { method: "PUT", path: "/bucket/a", query: "", headers: &headers };
        assert_eq!(S3Request::read(&head, ENDPOINT).err().map(|fault| fault.code), code, "{name}: {value}");
    }
}

/// A length that the client only claims does not stand for the one that it sends.
#[test]
fn the_length_of_a_body_is_bounded_whatever_is_said_of_it() {
    use S3FaultCode::{EntityTooLarge, InvalidArgument};
    let chunks = "STREAMING-UNSIGNED-PAYLOAD-TRAILER";
    for (payload, decoded, sent, code) in [
        ("UNSIGNED-PAYLOAD", "1", "67108864", None),
        ("UNSIGNED-PAYLOAD", "1", "67108865", Some(EntityTooLarge)),
        ("UNSIGNED-PAYLOAD", "x", "1", Some(InvalidArgument)),
        ("UNSIGNED-PAYLOAD", "1", "x", Some(InvalidArgument)),
        (chunks, "67108864", "67200000", None),
        (chunks, "67108865", "67200000", Some(EntityTooLarge)),
        (chunks, "67108864", "6500000000", Some(EntityTooLarge)),
        (chunks, "-1", "1", Some(InvalidArgument)),
    ] {
        let headers = [
            ("x-amz-content-sha256", payload),
            ("x-amz-decoded-content-length", decoded),
            ("content-length", sent),
        ];
        for query in ["", "uploadId=u&partNumber=1"] {
            let head = RequestHead { method: "PUT", path: "/bucket/a", query, headers: &headers };
            let found = S3Request::read(&head, ENDPOINT).err().map(|fault| fault.code);
            assert_eq!(found, code, "{payload} {decoded} {sent}");
        }
    }
}
