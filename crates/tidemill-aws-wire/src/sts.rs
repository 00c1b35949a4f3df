//! STS: who the caller is. Clients ask it to try their keys.

use crate::error_answer::STS_NAMESPACE;
use crate::wire_answer::{TEXT_XML, WireAnswer};
use crate::xml::XmlWriter;

/// The answer to `GetCallerIdentity`.
pub fn caller_identity(account: &str, user: &str, arn: &str, request_id: &str) -> WireAnswer {
    let body = XmlWriter::document("GetCallerIdentityResponse", Some(STS_NAMESPACE), |writer| {
        writer.element("GetCallerIdentityResult", |writer| {
            writer.text("Arn", arn);
            writer.text("UserId", user);
            writer.text("Account", account);
        });
        writer.element("ResponseMetadata", |writer| writer.text("RequestId", request_id));
    });
    WireAnswer::xml(200, TEXT_XML, body)
}
