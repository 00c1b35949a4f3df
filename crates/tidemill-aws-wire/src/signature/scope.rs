//! The scope of a credential: on which day, where and for what a signature holds.

use std::fmt;

/// What every scope ends with.
const TERMINATOR: &str = "aws4_request";

/// `20150830/us-east-1/iam/aws4_request`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialScope {
    /// Such as `20150830`. That it is the day of the request is checked with the signature.
    pub day: String,
    pub region: String,
    /// As credentials call it: `s3`, `sqs`, `dynamodb`, `events`, `states`, `sts`.
    pub service: String,
}

impl CredentialScope {
    /// Reads `AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request`: the id of the key, and its scope.
    pub(super) fn parse_credential(text: &str) -> Option<(&str, Self)> {
        let mut parts = text.split('/');
        let mut part = || parts.next().filter(|part| !part.is_empty());
        let (key_id, day, region, service) = (part()?, part()?, part()?, part()?);
        let ends = part()? == TERMINATOR && parts.next().is_none();
        let scope = Self { day: day.to_owned(), region: region.to_owned(), service: service.to_owned() };
        (ends && text.bytes().all(|byte| byte.is_ascii_graphic())).then_some((key_id, scope))
    }
}

impl fmt::Display for CredentialScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/{TERMINATOR}", self.day, self.region, self.service)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_has_five_parts_and_its_end() {
        let (key_id, scope) =
            CredentialScope::parse_credential("AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request").unwrap();
        assert_eq!(key_id, "AKIDEXAMPLE");
        assert_eq!(scope.to_string(), "20150830/us-east-1/iam/aws4_request");
        for wrong in [
            "",
            "AKIDEXAMPLE",
            "/20150830/us-east-1/iam/aws4_request",
            "AKIDEXAMPLE/20150830//iam/aws4_request",
            "AKIDEXAMPLE/20150830/us-east-1/aws4_request",
            "AKIDEXAMPLE/20150830/us-east-1/iam/aws4_request/",
            "AKIDEXAMPLE/20150830/us-east-1/iam/aws3_request",
            "AKID EXAMPLE/20150830/us-east-1/iam/aws4_request",
            "AKIDEXÄMPLE/20150830/us-east-1/iam/aws4_request",
        ] {
            assert_eq!(CredentialScope::parse_credential(wrong), None, "{wrong}");
        }
    }
}
