//! What agents used, and what they may use.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidemill_model::{Allowance, MicroUsd, Period, Spending, UsageSum};

/// One sum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "UsageRow")]
pub struct UsageRowView {
    /// The job's id, the task's name, the day (`2026-11-15`) or the tenant.
    pub key: String,
    #[serde(flatten)]
    pub sum: UsageSum,
}

/// What the agents of a tenant may use. At least one of `usd` and `tokens`; the first that is reached counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BudgetRequest {
    /// Dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd: Option<MicroUsd>,
    /// Of all kinds together: input, output, cache reads and cache writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1_000_000_000_000_u64))]
    pub tokens: Option<u64>,
    /// How long what was spent counts; `total` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<Period>,
}

/// What the agents of a job may use in all. At least one of `usd` and `tokens`; the first that is reached counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobBudgetRequest {
    /// Dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd: Option<MicroUsd>,
    /// Of all kinds together: input, output, cache reads and cache writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1_000_000_000_000_u64))]
    pub tokens: Option<u64>,
}

/// A budget and what was used of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "Budget")]
pub struct BudgetView {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd: Option<MicroUsd>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Only of a tenant's budget.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period: Option<Period>,
    /// In the current period.
    pub spent: Spending,
    /// Whether no further agent task starts.
    pub used_up: bool,
}

impl BudgetView {
    pub fn of(allowance: &Allowance, period: Option<Period>) -> Self {
        let Allowance { budget, spent } = *allowance;
        Self { usd: budget.usd, tokens: budget.tokens, period, spent, used_up: allowance.is_used_up() }
    }
}
