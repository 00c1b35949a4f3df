//! Budgets: how much the agents of a job or of a tenant may use before no further agent task starts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::authored::agent::{COST_MICROS_MAX, MicroUsd};
use crate::authored::document::Document;
use crate::authored::field_kinds::{schema_of, schema_with};
use crate::authored::field_problem::code;
use crate::authored::fields::{Part, field, fields};
use crate::spending::usage::Usage;
use crate::values::day::Day;
use crate::values::time::Timestamp;

/// The most tokens that a budget can name.
pub const BUDGET_TOKENS_MAX: u64 = 1_000_000_000_000;

/// What the error of a task says that was not started.
pub const BUDGET_EXCEEDED: &str = "BUDGET_EXCEEDED";

fields! {
    /// A limit in dollars, in tokens, or in both: the first that is reached counts.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    pub struct Budget {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub usd: Option<MicroUsd> = usd() => "Dollars.",
        /// Of all kinds together: input, output, cache reads and cache writes.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schemars(range(max = 1_000_000_000_000_u64))]
        pub tokens: Option<u64> = tokens() => "Tokens of all kinds together: input, output, cache reads and cache writes.",
    }
    first needs_one;
}

fn usd() -> impl Part<Value = Option<MicroUsd>> {
    let read = |document: &mut Document<'_>, name| {
        let usd = document.take(name)?.as_f64().and_then(MicroUsd::from_dollars);
        if usd.is_none() {
            let most = MicroUsd(COST_MICROS_MAX).dollars();
            document.problem(name, code::INVALID_VALUE, format!("must be dollars from 0 to {most}"));
        }
        usd
    };
    field("usd", read, schema_of::<Option<MicroUsd>>)
}

fn tokens() -> impl Part<Value = Option<u64>> {
    let read = |document: &mut Document<'_>, name| document.number(name, 0..=BUDGET_TOKENS_MAX);
    field("tokens", read, schema_with::<Option<u64>>([("maximum", BUDGET_TOKENS_MAX.into())]))
}

fn needs_one(document: &mut Document<'_>) {
    if !document.has("usd") && !document.has("tokens") {
        document.problem_here(code::MISSING_FIELD, "needs usd, tokens or both");
    }
}

/// What was used of a budget.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Spending {
    /// In dollars.
    #[serde(rename = "usd", with = "crate::spending::usage::dollars")]
    #[schemars(with = "f64")]
    pub cost_micros: u64,
    pub tokens: u64,
}

/// A budget and what was used of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allowance {
    pub budget: Budget,
    pub spent: Spending,
}

/// How long what was spent counts. Days and months are those of UTC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Period {
    /// For ever.
    #[default]
    Total,
    Day,
    Month,
}

/// The budget of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TenantBudget {
    pub period: Period,
    /// Which day or month `spent` is about.
    pub current: u32,
    pub allowance: Allowance,
}

/// Whose budget it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BudgetScope {
    Job,
    Tenant,
}

impl Budget {
    /// Whether this spending uses it up.
    pub fn is_used_up(&self, spent: Spending) -> bool {
        self.usd.is_some_and(|usd| spent.cost_micros >= usd.0)
            || self.tokens.is_some_and(|tokens| spent.tokens >= tokens)
    }
}

impl Spending {
    #[must_use]
    pub fn plus(self, usage: &Usage) -> Self {
        Self {
            cost_micros: self.cost_micros.saturating_add(usage.cost_micros),
            tokens: self.tokens.saturating_add(usage.tokens()),
        }
    }
}

impl Allowance {
    pub fn is_used_up(&self) -> bool {
        self.budget.is_used_up(self.spent)
    }

    /// Millionths of a dollar that may still be spent, if dollars are limited.
    pub fn left_micros(&self) -> Option<u64> {
        self.budget.usd.map(|usd| usd.0.saturating_sub(self.spent.cost_micros))
    }

    /// Which budget it is, for an agent that gets what is left of its dollars: `the job's budget of 5.00 USD, of
    /// which 4.20 USD were spent before`.
    pub fn name(&self, whose: &str, period: Period) -> Option<String> {
        let (usd, spent) = (self.budget.usd?, MicroUsd(self.spent.cost_micros));
        Some(format!("{whose} budget of {usd} USD{}, of which {spent} USD were spent before", period.span()))
    }

    /// Why nothing more may start: `the job's budget of 5.00 USD is used up: 5.12 USD`.
    pub fn used_up_text(&self, whose: &str, period: Period) -> Option<String> {
        let span = period.span();
        let Self { budget, spent } = self;
        if let Some(usd) = budget.usd.filter(|usd| spent.cost_micros >= usd.0) {
            let spent = MicroUsd(spent.cost_micros);
            return Some(format!("{whose} budget of {usd} USD{span} is used up: {spent} USD"));
        }
        let tokens = budget.tokens.filter(|tokens| spent.tokens >= *tokens)?;
        Some(format!("{whose} budget of {tokens} tokens{span} is used up: {} tokens", spent.tokens))
    }
}

impl Period {
    /// As it stands behind a limit.
    fn span(self) -> &'static str {
        match self {
            Self::Total => "",
            Self::Day => " a day",
            Self::Month => " a month",
        }
    }

    /// The day or month of a moment, as a number that grows.
    pub fn number(self, moment: Timestamp) -> u32 {
        match self {
            Self::Total => 0,
            Self::Day => Day::of(moment).number(),
            Self::Month => Day::of(moment).month().number(),
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Total => "total",
            Self::Day => "day",
            Self::Month => "month",
        }
    }
}

impl TenantBudget {
    /// The budget as it stands at a moment. A clock that was set back opens no earlier period again.
    #[must_use]
    pub fn at(mut self, moment: Timestamp) -> Self {
        let number = self.period.number(moment);
        if number > self.current {
            self.current = number;
            self.allowance.spent = Spending::default();
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::authored::field_problem::FieldProblems;
    use crate::authored::fields::Fields as _;

    #[test]
    fn a_budget_is_read_or_its_problem_told() {
        for (value, expected) in [
            (json!({"usd": 5}), Ok((Some(5_000_000), None))),
            (json!({"usd": 0.000_001, "tokens": 7}), Ok((Some(1), Some(7)))),
            (json!({"tokens": 0}), Ok((None, Some(0)))),
            (json!({"usd": 0}), Ok((Some(0), None))),
            (json!({"usd": -1}), Err("budget.usd")),
            (json!({"usd": "5"}), Err("budget.usd")),
            (json!({"usd": 1e9}), Err("budget.usd")),
            (json!({"tokens": 1.5}), Err("budget.tokens")),
            (json!({"tokens": -1}), Err("budget.tokens")),
            (json!({"tokens": 2_000_000_000_000_u64}), Err("budget.tokens")),
            (json!({"eur": 5, "usd": 5}), Err("budget.eur")),
            (json!({}), Err("budget")),
            (json!({"usd": null}), Err("budget")),
            (json!(5), Err("budget")),
        ] {
            let mut problems = FieldProblems::default();
            let budget = Budget::read_at("budget", value.clone(), &mut problems);
            let found = match problems.or(()) {
                Ok(()) => Ok(budget.map_or((None, None), |found| (found.usd.map(|usd| usd.0), found.tokens))),
                Err(problems) => Err(problems.listed[0].path.clone()),
            };
            assert_eq!(found, expected.map_err(str::to_owned), "{value}");
        }
    }

    #[test]
    fn a_budget_is_used_up_by_the_first_limit_that_is_reached() {
        let spent = Spending { cost_micros: 5_120_000, tokens: 1_000 };
        for (usd, tokens, period, expected) in [
            (None, None, Period::Total, None),
            (Some(5_120_001), Some(1_001), Period::Total, None),
            (Some(5_000_000), None, Period::Total, Some("the job's budget of 5.00 USD is used up: 5.12 USD")),
            (
                Some(5_120_000),
                None,
                Period::Day,
                Some("the job's budget of 5.12 USD a day is used up: 5.12 USD"),
            ),
            (
                Some(6_000_000),
                Some(1_000),
                Period::Month,
                Some("the job's budget of 1000 tokens a month is used up: 1000 tokens"),
            ),
            (Some(0), None, Period::Total, Some("the job's budget of 0.00 USD is used up: 5.12 USD")),
        ] {
            let budget = Budget { usd: usd.map(MicroUsd), tokens };
            let allowance = Allowance { budget, spent };
            assert_eq!(allowance.used_up_text("the job's", period).as_deref(), expected);
            assert_eq!(allowance.is_used_up(), expected.is_some());
        }
        let budget = Budget { usd: Some(MicroUsd(9_000_000)), tokens: None };
        let name = Allowance { budget, spent }.name("the tenant's", Period::Day);
        let expected = "the tenant's budget of 9.00 USD a day, of which 5.12 USD were spent before";
        assert_eq!(name.as_deref(), Some(expected));
        assert_eq!(Allowance::default().name("the job's", Period::Total), None);
    }

    #[test]
    fn a_new_period_begins_with_nothing_spent() {
        let at = |text: &str| Day::parse(text).unwrap().start();
        let spent = Spending { cost_micros: 5, tokens: 5 };
        for (period, moment, kept) in [
            (Period::Total, "2030-01-01", true),
            (Period::Day, "2026-11-15", true),
            (Period::Day, "2026-11-16", false),
            (Period::Day, "2026-11-14", true),
            (Period::Month, "2026-11-30", true),
            (Period::Month, "2026-12-01", false),
        ] {
            let current = period.number(at("2026-11-15"));
            let budget =
                TenantBudget { period, current, allowance: Allowance { spent, ..Allowance::default() } };
            let found = budget.at(at(moment));
            assert_eq!(found.allowance.spent == spent, kept, "{period:?} {moment}");
        }
    }
}
