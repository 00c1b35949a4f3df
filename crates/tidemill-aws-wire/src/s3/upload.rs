//! Uploads in parts: the list of parts that ends one, and the answers.

use md5::{Digest, Md5};
use quick_xml::Reader;
use quick_xml::events::Event;

use super::fault::{S3Fault, S3FaultCode};
use super::object::S3_NAMESPACE;
use crate::hex;
use crate::wire_answer::{APPLICATION_XML, WireAnswer};
use crate::xml::XmlWriter;

/// The number of the last part, and the number of parts.
pub const PART_NUMBER_MAX: u32 = 10_000;

/// One part as its client lists it at the end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadedPart {
    pub part_number: u32,
    /// Without quotes.
    pub etag: String,
}

/// Reads the body of `CompleteMultipartUpload`. Parts are in rising order, and there is at least one.
pub fn read_uploaded_parts(body: &[u8]) -> Result<Vec<UploadedPart>, S3Fault> {
    let text = std::str::from_utf8(body).map_err(|_| malformed())?;
    let mut reader = Reader::from_str(text);
    let mut path: Vec<String> = Vec::new();
    let (mut number, mut etag) = (String::new(), String::new());
    let mut parts: Vec<UploadedPart> = Vec::new();
    loop {
        match reader.read_event().map_err(|_| malformed())? {
            Event::Start(start) => {
                path.push(String::from_utf8_lossy(start.local_name().as_ref()).into_owned());
                if path.len() == 1 && path[0] != "CompleteMultipartUpload" || path.len() > 3 {
                    return Err(malformed());
                }
                let is_twice = match path.last().map(String::as_str) {
                    Some("PartNumber") => !number.is_empty(),
                    Some("ETag") => !etag.is_empty(),
                    _ => false,
                };
                if is_twice {
                    return Err(malformed());
                }
            }
            Event::End(_) => {
                let names: Vec<&str> = path.iter().map(String::as_str).collect();
                if names == ["CompleteMultipartUpload", "Part"] {
                    let part_number =
                        number.trim().parse().ok().filter(|number| (1..=PART_NUMBER_MAX).contains(number));
                    let part_number = part_number.ok_or_else(malformed)?;
                    if parts.last().is_some_and(|last| last.part_number >= part_number) {
                        return Err(S3Fault::new(
                            S3FaultCode::InvalidPartOrder,
                            "The list of parts was not in ascending order. The parts list must be specified in order by part number.",
                        ));
                    }
                    parts.push(UploadedPart { part_number, etag: etag.trim().trim_matches('"').to_owned() });
                    (number, etag) = (String::new(), String::new());
                }
                path.pop();
            }
            Event::Text(text) => {
                push(&path, &mut number, &mut etag, &text.decode().map_err(|_| malformed())?);
            }
            // Quotes of an ETag come as references.
            Event::GeneralRef(reference) => {
                let name = reference.decode().map_err(|_| malformed())?;
                let character = match reference.resolve_char_ref().map_err(|_| malformed())? {
                    Some(character) => character.to_string(),
                    None => {
                        quick_xml::escape::resolve_predefined_entity(&name).ok_or_else(malformed)?.to_owned()
                    }
                };
                push(&path, &mut number, &mut etag, &character);
            }
            Event::Eof if path.is_empty() && !parts.is_empty() => return Ok(parts),
            Event::Eof | Event::DocType(_) | Event::CData(_) => return Err(malformed()),
            Event::Empty(_) | Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
        }
    }
}

fn push(path: &[String], number: &mut String, etag: &mut String, text: &str) {
    match path {
        [_, part, member] if part == "Part" && member == "PartNumber" => number.push_str(text),
        [_, part, member] if part == "Part" && member == "ETag" => etag.push_str(text),
        _ => {}
    }
}

fn malformed() -> S3Fault {
    S3Fault::new(
        S3FaultCode::MalformedXml,
        "The XML you provided was not well-formed or did not validate against our published schema",
    )
}

/// The `ETag` of an object that was uploaded in parts: the sum of their sums, and how many they were.
pub fn etag_of_parts(md5_of_parts: &[[u8; 16]]) -> String {
    let mut sum = Md5::new();
    for md5 in md5_of_parts {
        sum.update(md5);
    }
    format!("\"{}-{}\"", hex::encode(sum.finalize().as_slice()), md5_of_parts.len())
}

/// The answer to `CreateMultipartUpload`.
pub fn upload_created(bucket: &str, key: &str, upload_id: &str) -> WireAnswer {
    let body = XmlWriter::document("InitiateMultipartUploadResult", Some(S3_NAMESPACE), |writer| {
        writer.text("Bucket", bucket);
        writer.text("Key", key);
        writer.text("UploadId", upload_id);
    });
    WireAnswer::xml(200, APPLICATION_XML, body)
}

/// The answer to `CompleteMultipartUpload`.
pub fn upload_completed(location: &str, bucket: &str, key: &str, etag: &str) -> WireAnswer {
    let body = XmlWriter::document("CompleteMultipartUploadResult", Some(S3_NAMESPACE), |writer| {
        writer.text("Location", location);
        writer.text("Bucket", bucket);
        writer.text("Key", key);
        writer.text("ETag", etag);
    });
    WireAnswer::xml(200, APPLICATION_XML, body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_parts_are_read_or_malformed() {
        let of = |parts: &str| {
            format!("<CompleteMultipartUpload xmlns=\"urn:x\">{parts}</CompleteMultipartUpload>")
        };
        let part = |number: &str, etag: &str| {
            format!("<Part><ETag>{etag}</ETag><PartNumber>{number}</PartNumber></Part>")
        };
        let read = |body: &str| {
            let parts = read_uploaded_parts(body.as_bytes()).map_err(|fault| fault.code)?;
            Ok(parts.into_iter().map(|part| (part.part_number, part.etag)).collect::<Vec<_>>())
        };
        for etag in ["\"a1\"", "a1", "&quot;a1&quot;", "&#34;a1&#x22;"] {
            assert_eq!(read(&of(&part("1", etag))), Ok(vec![(1, "a1".to_owned())]), "{etag}");
        }
        for (body, code) in [
            (of(""), S3FaultCode::MalformedXml),
            (String::new(), S3FaultCode::MalformedXml),
            ("<Other/>".to_owned(), S3FaultCode::MalformedXml),
            (of(&part("0", "a")), S3FaultCode::MalformedXml),
            (of(&part("10001", "a")), S3FaultCode::MalformedXml),
            (of(&part("x", "a")), S3FaultCode::MalformedXml),
            (of(&part("1</PartNumber><PartNumber>2", "a")), S3FaultCode::MalformedXml),
            (of(&part("1", "a</ETag><ETag>b")), S3FaultCode::MalformedXml),
            (of(&part("1", "&unknown;")), S3FaultCode::MalformedXml),
            (format!("<!DOCTYPE a [<!ENTITY b \"c\">]>{}", of(&part("1", "a"))), S3FaultCode::MalformedXml),
            (of(&(part("2", "a") + &part("1", "b"))), S3FaultCode::InvalidPartOrder),
            (of(&(part("1", "a") + &part("1", "b"))), S3FaultCode::InvalidPartOrder),
            (of(&part("1", "a")).replace("</CompleteMultipartUpload>", ""), S3FaultCode::MalformedXml),
        ] {
            assert_eq!(read(&body), Err(code), "{body}");
        }
    }
}
