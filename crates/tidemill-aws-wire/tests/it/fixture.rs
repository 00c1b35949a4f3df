//! Requests as botocore sends them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use tidemill_aws_wire::RequestHead;
use tidemill_aws_wire::call::{AwsCall, NotServed};

/// One request of `fixtures/requests.json`, or of `fixtures/requests_query.json`.
#[derive(Debug, Deserialize)]
pub(crate) struct Fixture {
    pub(crate) name: String,
    pub(crate) scope: String,
    pub(crate) operation: String,
    method: String,
    path: String,
    query: String,
    headers: BTreeMap<String, String>,
    pub(crate) body: String,
    /// The sums that moto computes for a message.
    #[serde(default)]
    pub(crate) md5: Value,
}

impl Fixture {
    /// Requests of current clients.
    pub(crate) fn current() -> Vec<Self> {
        serde_json::from_str(include_str!("../fixtures/requests.json")).expect("the script wrote JSON")
    }

    /// Requests of clients that speak the query protocol with SQS.
    pub(crate) fn of_forms() -> Vec<Self> {
        serde_json::from_str(include_str!("../fixtures/requests_query.json")).expect("the script wrote JSON")
    }

    pub(crate) fn with_head<T>(&self, read: impl FnOnce(&RequestHead<'_>) -> T) -> T {
        let headers: Vec<_> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        read(&RequestHead { method: &self.method, path: &self.path, query: &self.query, headers: &headers })
    }

    pub(crate) fn call(&self) -> Result<AwsCall, NotServed> {
        self.with_head(|head| AwsCall::read(head, Some(&self.scope), self.body.as_bytes()))
    }
}
