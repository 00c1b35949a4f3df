//! `tidemill usage`: what agents used, and what they may use.

use std::process::ExitCode;

use axum::http::Method;
use clap::{Args, Subcommand, ValueEnum};
use serde_json::json;
use tidemill_api as api;
use tidemill_model::{Day, MicroUsd, Period, UsageSum};

use super::runtime::block_on;
use super::{Ended, Flags};
use crate::client::{Call, Client, Query, Reach, ReachArguments};
use crate::config::Resolved;
use crate::display::Table;
use crate::display::humanize::{count, grouped, span};
use crate::output::Output;

/// Sum up what agents used: tokens, turns, time and dollars
///
/// Attempts are added up as they end, failed ones included. Days are those of UTC; for jobs, those on which they were
/// submitted.
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES, args_conflicts_with_subcommands = true)]
pub(crate) struct Usage {
    #[command(flatten)]
    reach: ReachArguments,
    /// Print JSON
    #[arg(long, global = true)]
    json: bool,
    /// What is added up
    #[arg(long, default_value = "day")]
    by: By,
    /// From this day on, as in 2026-11-15
    #[arg(long, value_name = "DAY", value_parser = day)]
    from: Option<Day>,
    /// Up to this day
    #[arg(long, value_name = "DAY", value_parser = day)]
    to: Option<Day>,
    /// How many at most
    #[arg(long, default_value_t = 1_000)]
    limit: usize,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum By {
    /// Jobs, newest first
    Job,
    /// The names of tasks
    Definition,
    /// Days, oldest first
    Day,
    /// All together
    Tenant,
}

#[derive(Subcommand)]
enum What {
    /// What the agents of the tenant may use
    Budget {
        #[command(subcommand)]
        what: BudgetWhat,
    },
}

#[derive(Subcommand)]
enum BudgetWhat {
    /// Set the budget: no agent task starts once it is used up
    Set {
        #[command(flatten)]
        limits: Limits,
        /// How long what was spent counts
        #[arg(long, default_value = "total")]
        period: PeriodName,
    },
    /// Show the budget and what was used of it
    Show,
    /// Remove the budget
    Clear,
}

/// How much may be used; the first limit that is reached counts.
#[derive(Args, Clone, Copy)]
#[group(required = true, multiple = true)]
pub(super) struct Limits {
    /// Dollars
    #[arg(long, value_name = "DOLLARS", value_parser = dollars)]
    pub(super) usd: Option<MicroUsd>,
    /// Tokens of all kinds together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=tidemill_model::spending::budget::BUDGET_TOKENS_MAX))]
    pub(super) tokens: Option<u64>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum PeriodName {
    /// For ever
    Total,
    Day,
    Month,
}

impl PeriodName {
    fn period(self) -> Period {
        match self {
            Self::Total => Period::Total,
            Self::Day => Period::Day,
            Self::Month => Period::Month,
        }
    }
}

fn day(text: &str) -> Result<Day, String> {
    Day::parse(text).ok_or_else(|| "it must be a day, such as 2026-11-15".to_owned())
}

pub(super) fn dollars(text: &str) -> Result<MicroUsd, String> {
    let amount = text.parse().ok().and_then(MicroUsd::from_dollars);
    amount.ok_or_else(|| "it must be an amount of dollars from 0 to 1000000, such as 2.50".to_owned())
}

impl By {
    fn name(self) -> &'static str {
        match self {
            Self::Job => "job",
            Self::Definition => "definition",
            Self::Day => "day",
            Self::Tenant => "tenant",
        }
    }

    fn headings(self) -> &'static [&'static str] {
        macro_rules! headings {
            ($first:literal) => {
                &[
                    $first,
                    "TASKS",
                    "ATTEMPTS",
                    "INPUT",
                    "OUTPUT",
                    "CACHE READ",
                    "CACHE WRITE",
                    "TURNS",
                    "TIME",
                    "USD",
                ]
            };
        }
        match self {
            Self::Job => headings!("JOB"),
            Self::Definition => headings!("DEFINITION"),
            Self::Day => headings!("DAY"),
            Self::Tenant => headings!("TENANT"),
        }
    }
}

impl Usage {
    pub(crate) fn flags(&self) -> Flags {
        self.reach.flags()
    }

    pub(crate) fn execute(self, config: &Resolved, out: &mut Output) -> Ended {
        block_on(async {
            let client = Reach::Existing.client(config).await?;
            match &self.what {
                None => self.sums(&client, out).await,
                Some(What::Budget { what }) => budget(&client, what, self.json, out).await,
            }
        })
    }

    async fn sums(&self, client: &Client, out: &mut Output) -> Ended {
        let query = Query::new().set("by", self.by.name()).maybe("from", self.from).maybe("to", self.to);
        let rows: Vec<api::UsageRowView> = client.list("/v1/usage", &query, self.limit).await?;
        if self.json {
            out.json(&json!({ "items": rows }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut table = Table::new(self.by.headings());
        let total = rows.iter().fold(UsageSum::default(), |total, row| total.and(&row.sum));
        let rows_shown = rows.len();
        for row in rows {
            table.row(cells(row.key, &row.sum));
        }
        if rows_shown > 1 {
            table.row(cells("total".to_owned(), &total));
        }
        out.table(&table)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn cells(key: String, sum: &UsageSum) -> Vec<String> {
    let counts = [
        sum.tasks,
        sum.attempts,
        sum.input_tokens,
        sum.output_tokens,
        sum.cache_read_tokens,
        sum.cache_write_tokens,
        sum.turns,
    ];
    let mut cells = vec![key];
    cells.extend(counts.map(grouped));
    cells.extend([span(sum.duration_ms), MicroUsd(sum.cost_micros).to_string()]);
    cells
}

async fn budget(client: &Client, what: &BudgetWhat, json: bool, out: &mut Output) -> Ended {
    let call = match what {
        BudgetWhat::Set { limits, period } => {
            let Limits { usd, tokens } = *limits;
            let request = api::BudgetRequest { usd, tokens, period: Some(period.period()) };
            Call::new(Method::PUT, "/v1/budget").with_json(&request)
        }
        BudgetWhat::Show => Call::get("/v1/budget"),
        BudgetWhat::Clear => {
            client.bytes(Call::new(Method::DELETE, "/v1/budget")).await?;
            out.note("there is no budget any more");
            return Ok(ExitCode::SUCCESS);
        }
    };
    let budget: api::BudgetView = client.json(call).await?;
    if json {
        out.json(&budget)?;
    } else {
        out.data(budget_line(&budget))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// What was used of a budget: `1.25 of 5.00 USD a day`.
pub(super) fn budget_line(budget: &api::BudgetView) -> String {
    let span = match budget.period {
        Some(Period::Day) => " a day",
        Some(Period::Month) => " a month",
        Some(Period::Total) | None => "",
    };
    let usd = budget.usd.map(|usd| format!("{} of {usd} USD{span}", MicroUsd(budget.spent.cost_micros)));
    let tokens = budget
        .tokens
        .map(|tokens| format!("{} of {} tokens{span}", grouped(budget.spent.tokens), grouped(tokens)));
    let parts: Vec<_> = usd.into_iter().chain(tokens).collect();
    let end = if budget.used_up { "; used up: no agent task starts" } else { "" };
    format!("{}{end}", parts.join(", "))
}

/// What agents used, in a few words: `12,345 tokens in 7 turns, 0.75 USD`.
pub(super) fn usage_line(sum: &UsageSum) -> String {
    words(sum.tokens(), sum.turns, sum.cost_micros)
}

/// The same of one task.
pub(super) fn used_line(usage: &tidemill_model::Usage) -> String {
    words(usage.tokens(), usage.turns.into(), usage.cost_micros)
}

fn words(tokens: u64, turns: u64, cost_micros: u64) -> String {
    format!("{} in {}, {} USD", count(tokens, "token"), count(turns, "turn"), MicroUsd(cost_micros))
}

#[cfg(test)]
mod tests {
    use tidemill_model::Spending;

    use super::*;

    #[test]
    fn budgets_and_sums_read_well() {
        let spent = Spending { cost_micros: 1_250_000, tokens: 12_345 };
        let (usd, tokens) = (Some(MicroUsd(5_000_000)), Some(1_000));
        for (usd, tokens, period, used_up, expected) in [
            (usd, None, None, false, "1.25 of 5.00 USD"),
            (usd, None, Some(Period::Day), false, "1.25 of 5.00 USD a day"),
            (
                usd,
                tokens,
                Some(Period::Total),
                true,
                "1.25 of 5.00 USD, 12,345 of 1,000 tokens; used up: no agent task starts",
            ),
            (
                None,
                tokens,
                Some(Period::Month),
                true,
                "12,345 of 1,000 tokens a month; used up: no agent task starts",
            ),
        ] {
            let budget = api::BudgetView { usd, tokens, period, spent, used_up };
            assert_eq!(budget_line(&budget), expected);
        }
        let sum = UsageSum {
            input_tokens: 12_000,
            output_tokens: 345,
            turns: 1,
            cost_micros: 810,
            ..UsageSum::default()
        };
        assert_eq!(usage_line(&sum), "12,345 tokens in 1 turn, 0.00081 USD");
    }

    #[test]
    fn amounts_and_days_are_read_or_refused() {
        assert_eq!(dollars("2.50"), Ok(MicroUsd(2_500_000)));
        for text in ["-1", "x", "1e9", "NaN", ""] {
            assert!(dollars(text).is_err(), "{text}");
        }
        assert!(day("2026-11-15").is_ok() && day("15.11.2026").is_err());
    }
}
