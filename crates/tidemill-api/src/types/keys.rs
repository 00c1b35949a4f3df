//! API keys.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Role;

/// A key to be made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeyRequest {
    pub role: Role,
    /// The tenant of the caller when absent. Only a worker's key may name several; only the operator of the installation
    /// may name others than the caller's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1_000))]
    pub tenants: Option<Vec<String>>,
    /// What it is for, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 200))]
    pub label: Option<String>,
    /// Clients of AWS sign with it too, at a server with the gateway. Its secret is kept, sealed.
    #[serde(default, skip_serializing_if = "tidemill_model::is_default")]
    pub aws: bool,
}

/// A key, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Key")]
pub struct KeyView {
    pub id: String,
    pub role: Role,
    pub tenants: Vec<String>,
    pub label: Option<String>,
    /// Epoch milliseconds.
    pub created_at: u64,
    /// Epoch milliseconds; null while it is good.
    pub revoked_at: Option<u64>,
}

/// A new key. Its token is shown this once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeyCreated {
    pub key: KeyView,
    /// `Authorization: Bearer` and this.
    pub token: String,
    /// What clients of AWS sign with, if the key was made for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aws: Option<AwsCredentials>,
}

/// A key as clients of AWS know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AwsCredentials {
    /// `AWS_ACCESS_KEY_ID`
    pub access_key_id: String,
    /// `AWS_SECRET_ACCESS_KEY`
    pub secret_access_key: String,
}
