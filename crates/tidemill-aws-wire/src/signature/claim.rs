//! What a request says of its own signature: whose it is, for what, when, and over which headers.
//!
//! Nothing of it is proven until it is verified. It is read from the header `Authorization` or from the query of a presigned
//! address, never from both.

use super::bounds::{AUTHORIZATION_BYTES_MAX, CREDENTIAL_BYTES_MAX, EXPIRES_SECS_MAX, SIGNED_HEADERS_MAX};
use super::key::ALGORITHM;
use super::query::{Parameters, SIGNATURE};
use super::{AmzDate, CredentialScope, PayloadHash, SignatureError, WireRequest};
use crate::hex;

/// Where the signature was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureSource {
    Header,
    /// In the query of an address that somebody else may have made, good for this long from its date on.
    Presigned {
        expires_secs: u64,
    },
}

/// A signature that was read and not verified.
#[derive(Debug, Clone)]
pub struct SignatureClaim {
    pub(super) access_key_id: String,
    pub(super) scope: CredentialScope,
    pub(super) date: AmzDate,
    /// In lower case, sorted, each once.
    pub(super) signed_headers: Vec<String>,
    /// Nothing if what was sent cannot be the signature of anything.
    pub(super) signature: Option<[u8; 32]>,
    pub(super) source: SignatureSource,
    pub(super) parameters: Parameters,
}

impl SignatureClaim {
    pub fn of(request: &WireRequest<'_>) -> Result<Self, SignatureError> {
        request.within_bounds()?;
        let parameters = Parameters::parse(request.query)?;
        let in_query = ["X-Amz-Algorithm", "X-Amz-Credential", SIGNATURE];
        let presigned = in_query.iter().any(|name| parameters.contains(name));
        let header = request.single("authorization");
        match header.map_err(|_| SignatureError::Malformed("the header `Authorization` is not one text"))? {
            None if presigned => Self::of_query(parameters),
            None => Err(SignatureError::Missing),
            Some(_) if presigned => Err(SignatureError::Malformed("it is in a header and in the query")),
            Some(header) => Self::of_header(request, header, parameters),
        }
    }

    /// Whose secret is to be looked up.
    pub fn access_key_id(&self) -> &str {
        &self.access_key_id
    }

    pub fn scope(&self) -> &CredentialScope {
        &self.scope
    }

    pub fn date(&self) -> AmzDate {
        self.date
    }

    pub fn source(&self) -> SignatureSource {
        self.source
    }

    /// What the request says of its body, or nothing if the service signs the hash of whatever comes.
    pub fn payload(
        &self,
        request: &WireRequest<'_>,
        service: &str,
    ) -> Result<Option<PayloadHash>, SignatureError> {
        let presigned = self.source != SignatureSource::Header;
        PayloadHash::of_request(request, &self.parameters, presigned, service)
    }

    fn of_header(
        request: &WireRequest<'_>,
        header: &str,
        parameters: Parameters,
    ) -> Result<Self, SignatureError> {
        if header.len() > AUTHORIZATION_BYTES_MAX {
            let piece = "the header `Authorization`";
            return Err(SignatureError::TooLarge { piece, limit: AUTHORIZATION_BYTES_MAX });
        }
        let fields = header.strip_prefix(ALGORITHM).filter(|rest| rest.is_empty() || rest.starts_with(' '));
        let fields = HeaderFields::parse(fields.ok_or(SignatureError::OtherAlgorithm)?)?;
        let (access_key_id, scope) = read_credential(fields.credential)?;
        Ok(Self {
            access_key_id,
            scope,
            date: date_of_headers(request)?,
            signed_headers: read_signed_headers(fields.signed_headers)?,
            signature: hex::decode_32(fields.signature),
            source: SignatureSource::Header,
            parameters,
        })
    }

    fn of_query(parameters: Parameters) -> Result<Self, SignatureError> {
        let required = |name, problem| {
            let value = parameters.single(name)?.filter(|value| !value.is_empty());
            value.ok_or(SignatureError::Malformed(problem))
        };
        if required("X-Amz-Algorithm", "`X-Amz-Algorithm` is missing")? != ALGORITHM {
            return Err(SignatureError::OtherAlgorithm);
        }
        let credential = required("X-Amz-Credential", "`X-Amz-Credential` is missing")?;
        let date = required("X-Amz-Date", "`X-Amz-Date` is missing")?;
        let expires = required("X-Amz-Expires", "`X-Amz-Expires` is missing")?;
        let signed_headers = required("X-Amz-SignedHeaders", "`X-Amz-SignedHeaders` is missing")?;
        let signature = required(SIGNATURE, "`X-Amz-Signature` is missing")?;
        let digits = expires.bytes().all(|byte| byte.is_ascii_digit());
        let expires_secs =
            expires.parse().ok().filter(|secs| digits && (1..=EXPIRES_SECS_MAX).contains(secs));
        let problem = "`X-Amz-Expires` is not a number of seconds from 1 to 604800";
        let expires_secs = expires_secs.ok_or(SignatureError::Malformed(problem))?;
        let (access_key_id, scope) = read_credential(&credential)?;
        Ok(Self {
            access_key_id,
            scope,
            date: AmzDate::parse(&date).ok_or(SignatureError::Malformed("`X-Amz-Date` is no date"))?,
            signed_headers: read_signed_headers(&signed_headers)?,
            signature: hex::decode_32(&signature),
            source: SignatureSource::Presigned { expires_secs },
            parameters,
        })
    }
}

/// The fields of an `Authorization` header.
struct HeaderFields<'h> {
    credential: &'h str,
    signed_headers: &'h str,
    signature: &'h str,
}

impl<'h> HeaderFields<'h> {
    /// Fields come in any order. Blanks after commas are usual and may be missing.
    fn parse(text: &'h str) -> Result<Self, SignatureError> {
        let (mut credential, mut signed_headers, mut signature) = (None, None, None);
        for field in text.split(',').map(str::trim).filter(|field| !field.is_empty()) {
            let (name, value) = field.split_once('=').unwrap_or((field, ""));
            let place = match name {
                "Credential" => &mut credential,
                "SignedHeaders" => &mut signed_headers,
                "Signature" => &mut signature,
                _ => {
                    return Err(SignatureError::Malformed("the header `Authorization` has an unknown field"));
                }
            };
            if value.is_empty() || place.replace(value).is_some() {
                let problem = "a field of the header `Authorization` is empty or there twice";
                return Err(SignatureError::Malformed(problem));
            }
        }
        let missing = |problem| move || SignatureError::Malformed(problem);
        Ok(Self {
            credential: credential.ok_or_else(missing("`Credential` is missing"))?,
            signed_headers: signed_headers.ok_or_else(missing("`SignedHeaders` is missing"))?,
            signature: signature.ok_or_else(missing("`Signature` is missing"))?,
        })
    }
}

/// The date of the request: `x-amz-date`, or `Date` if that is absent.
fn date_of_headers(request: &WireRequest<'_>) -> Result<AmzDate, SignatureError> {
    let ambiguous = |_| SignatureError::Malformed("the date of the request is not one text");
    let date = request.single("date").map_err(ambiguous)?;
    let found = match (request.single("x-amz-date").map_err(ambiguous)?, date) {
        (Some(text), _) => AmzDate::parse(text),
        (None, Some(text)) => AmzDate::parse_date_header(text),
        (None, None) => {
            return Err(SignatureError::Malformed("neither `x-amz-date` nor `Date` is there"));
        }
    };
    found.ok_or(SignatureError::Malformed("the date of the request is no date"))
}

fn read_credential(text: &str) -> Result<(String, CredentialScope), SignatureError> {
    if text.len() > CREDENTIAL_BYTES_MAX {
        return Err(SignatureError::TooLarge { piece: "the credential", limit: CREDENTIAL_BYTES_MAX });
    }
    let problem = "the credential is not KEY/DAY/REGION/SERVICE/aws4_request";
    let found = CredentialScope::parse_credential(text).ok_or(SignatureError::Malformed(problem))?;
    Ok((found.0.to_owned(), found.1))
}

fn read_signed_headers(text: &str) -> Result<Vec<String>, SignatureError> {
    let names: Vec<String> = text.split(';').take(SIGNED_HEADERS_MAX + 1).map(str::to_owned).collect();
    if names.len() > SIGNED_HEADERS_MAX {
        let piece = "the number of signed headers";
        return Err(SignatureError::TooLarge { piece, limit: SIGNED_HEADERS_MAX });
    }
    let is_name = |name: &String| {
        let in_name = |byte: u8| byte.is_ascii_graphic() && !byte.is_ascii_uppercase() && byte != b':';
        !name.is_empty() && name.bytes().all(in_name)
    };
    if !names.iter().all(is_name) {
        return Err(SignatureError::Malformed("`SignedHeaders` has what is no name in lower case"));
    }
    if !names.is_sorted_by(|one, next| one < next) {
        return Err(SignatureError::Malformed("`SignedHeaders` is not sorted"));
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CREDENTIAL: &str = "AKIDEXAMPLE/20150830/us-east-1/sqs/aws4_request";
    const SIGNED: &str = "host;x-amz-date";

    fn read(authorization: &str) -> Result<SignatureClaim, SignatureError> {
        let headers = [("X-Amz-Date", &b"20150830T123600Z"[..]), ("Authorization", authorization.as_bytes())];
        SignatureClaim::of(&WireRequest { method: "GET", path: "/", query: "", headers: &headers })
    }

    fn problem(found: Result<SignatureClaim, SignatureError>) -> String {
        found.map_or_else(|error| error.to_string(), |_| String::new())
    }

    #[test]
    fn a_header_is_read_with_or_without_blanks_and_in_any_order() {
        for header in [
            format!("AWS4-HMAC-SHA256 Credential={CREDENTIAL}, SignedHeaders={SIGNED}, Signature=00"),
            format!("AWS4-HMAC-SHA256 Credential={CREDENTIAL},SignedHeaders={SIGNED},Signature=00"),
            format!("  AWS4-HMAC-SHA256   Signature=00 ,SignedHeaders={SIGNED}, Credential={CREDENTIAL},  "),
        ] {
            let claim = read(&header).unwrap();
            assert_eq!(claim.access_key_id(), "AKIDEXAMPLE", "{header}");
            assert_eq!(claim.scope().service, "sqs");
            assert_eq!(claim.signed_headers, ["host", "x-amz-date"]);
            assert_eq!(claim.date().to_string(), "20150830T123600Z");
            assert_eq!(claim.source(), SignatureSource::Header);
        }
    }

    #[test]
    fn a_header_that_cannot_be_read_is_refused_with_the_reason() {
        let with = |credential: &str, signed: &str| {
            format!("AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={signed}, Signature=00")
        };
        let many: Vec<String> = (0..=SIGNED_HEADERS_MAX).map(|index| format!("h{index:04}")).collect();
        for (header, expected) in [
            (String::new(), "not signed by AWS4"),
            ("Bearer tm_x_y".to_owned(), "not signed by AWS4"),
            ("AWS4-ECDSA-P256-SHA256 Credential=x".to_owned(), "not signed by AWS4"),
            ("AWS4-HMAC-SHA256X".to_owned(), "not signed by AWS4"),
            ("AWS4-HMAC-SHA256".to_owned(), "`Credential` is missing"),
            (format!("AWS4-HMAC-SHA256 Credential={CREDENTIAL}"), "`SignedHeaders` is missing"),
            (
                format!("AWS4-HMAC-SHA256 Credential={CREDENTIAL}, SignedHeaders=host"),
                "`Signature` is missing",
            ),
            (with(CREDENTIAL, "host") + ", Signature=11", "empty or there twice"),
            (with("", "host"), "empty or there twice"),
            (with(CREDENTIAL, "host") + ", Extra=1", "unknown field"),
            (with("AKID/20150830/us-east-1/sqs", "host"), "KEY/DAY/REGION"),
            (with(&"A".repeat(CREDENTIAL_BYTES_MAX + 1), "host"), "the credential is larger than"),
            (with(CREDENTIAL, "Host"), "no name in lower case"),
            (with(CREDENTIAL, "host;"), "no name in lower case"),
            (with(CREDENTIAL, "x-amz-date;host"), "not sorted"),
            (with(CREDENTIAL, "host;host"), "not sorted"),
            (with(CREDENTIAL, &many.join(";")), "the number of signed headers"),
            (with(CREDENTIAL, &"a".repeat(AUTHORIZATION_BYTES_MAX)), "`Authorization` is larger than"),
        ] {
            let told = problem(read(&header));
            assert!(told.contains(expected), "{header}: {told}");
        }
    }

    #[test]
    fn a_presigned_query_has_all_its_parameters_once() {
        let whole = "X-Amz-Algorithm=AWS4-HMAC-SHA256&\
            X-Amz-Credential=AKIDEXAMPLE%2F20150830%2Fus-east-1%2Fs3%2Faws4_request&\
            X-Amz-Date=20150830T123600Z&X-Amz-Expires=604800&X-Amz-SignedHeaders=host&X-Amz-Signature=00";
        let read =
            |query: &str| SignatureClaim::of(&WireRequest { method: "GET", path: "/", query, headers: &[] });
        let claim = read(whole).unwrap();
        assert_eq!(claim.source(), SignatureSource::Presigned { expires_secs: EXPIRES_SECS_MAX });
        assert_eq!(claim.access_key_id(), "AKIDEXAMPLE");
        for (from, to, expected) in [
            ("Algorithm=AWS4-HMAC-SHA256", "Algorithm=AWS4-ECDSA-P256-SHA256", "not signed by"),
            ("X-Amz-Algorithm=AWS4-HMAC-SHA256&", "", "`X-Amz-Algorithm` is missing"),
            ("%2Faws4_request", "", "KEY/DAY/REGION"),
            ("X-Amz-Date=20150830T123600Z", "", "`X-Amz-Date` is missing"),
            ("20150830T123600Z", "2015-08-30", "`X-Amz-Date` is no date"),
            ("604800", "604801", "from 1 to 604800"),
            ("604800", "0", "from 1 to 604800"),
            ("604800", "%2B5", "from 1 to 604800"),
            ("604800", "", "`X-Amz-Expires` is missing"),
            ("604800", "60&X-Amz-Expires=61", "there twice"),
            ("X-Amz-SignedHeaders=host&", "", "`X-Amz-SignedHeaders` is missing"),
            ("X-Amz-Signature=00", "", "`X-Amz-Signature` is missing"),
        ] {
            let told = problem(read(&whole.replace(from, to)));
            assert!(told.contains(expected), "{from} as {to}: {told}");
        }
    }

    #[test]
    fn a_request_has_one_signature_and_one_date() {
        let header =
            format!("AWS4-HMAC-SHA256 Credential={CREDENTIAL}, SignedHeaders={SIGNED}, Signature=00");
        let authorization = ("authorization", header.as_bytes());
        let date = ("date", &b"Sun, 30 Aug 2015 12:36:00 GMT"[..]);
        let amz_date = ("x-amz-date", &b"20150830T123600Z"[..]);
        for (query, headers, expected) in [
            ("", vec![], "has no signature"),
            ("a=b", vec![amz_date], "has no signature"),
            ("", vec![authorization, date], ""),
            ("", vec![authorization, amz_date, ("date", b"tomorrow")], ""),
            ("", vec![authorization], "neither `x-amz-date` nor"),
            ("", vec![authorization, ("x-amz-date", b"tomorrow")], "is no date"),
            ("", vec![authorization, amz_date, amz_date], "is not one text"),
            ("", vec![authorization, authorization, amz_date], "is not one text"),
            ("X-Amz-Signature=00", vec![authorization, amz_date], "in a header and in the query"),
        ] {
            let request = WireRequest { method: "GET", path: "/", query, headers: &headers };
            let told = problem(SignatureClaim::of(&request));
            assert!(told.contains(expected) && told.is_empty() == expected.is_empty(), "{query}: {told}");
        }
    }
}
