//! What agents used, and what they may use.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidemill_model::{Day, JobId, TaskName, TenantId, UsageSum};

use crate::engine::limits::{LIST_MAX, USAGE_ROWS_MAX};
use crate::engine::{Engine, EngineError, check};
use crate::kernel::backend::Backend;
use crate::kernel::reads::Reads as _;
use crate::kernel::record::{
    DAY_AND_DEFINITION_USAGE, DAY_USAGE, DEFINITION_USAGE, JOB_USAGE, RecordKey, RecordKind, RecordValue,
    UsageOf,
};

/// What sums are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageBy {
    /// Jobs, the newest first. Days are those on which they were submitted.
    Job,
    /// The names of tasks.
    Definition,
    /// Days by UTC, the oldest first.
    Day,
    /// All together.
    Tenant,
}

/// Which sums are asked for.
#[derive(Debug, Clone)]
pub struct UsageQuery {
    pub tenant: TenantId,
    pub by: UsageBy,
    /// The first day.
    pub from: Option<Day>,
    /// The last day.
    pub to: Option<Day>,
    /// The key of the last sum of the page before.
    pub after: Option<String>,
    pub limit: usize,
}

/// One sum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageRow {
    /// The job, the name, the day or the tenant.
    pub key: String,
    pub sum: UsageSum,
}

/// Sums, and whether there are more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsagePage {
    pub rows: Vec<UsageRow>,
    pub is_last: bool,
}

impl<B: Backend> Engine<B> {
    /// What agents used, as sums of one kind.
    pub async fn usage(&self, query: UsageQuery) -> Result<UsagePage, EngineError> {
        check::count("limit", query.limit, LIST_MAX)?;
        if let (Some(from), Some(to)) = (query.from, query.to)
            && from > to
        {
            return Err(EngineError::invalid("from", format!("is {from}, which lies after {to}")));
        }
        match query.by {
            UsageBy::Job => self.usage_of_jobs(query).await,
            UsageBy::Day => self.usage_of_days(query).await,
            UsageBy::Definition if query.from.is_none() && query.to.is_none() => {
                self.usage_of_names(query).await
            }
            UsageBy::Definition => self.usage_of_names_within(query).await,
            UsageBy::Tenant => self.usage_of_tenant(query).await,
        }
    }

    /// What the agents of a job used; `None` when none of them said.
    pub async fn job_usage(&self, tenant: &TenantId, job: JobId) -> Result<Option<UsageSum>, EngineError> {
        self.sum(RecordKey::usage(tenant, UsageOf::Job(job))).await
    }

    async fn usage_of_jobs(&self, query: UsageQuery) -> Result<UsagePage, EngineError> {
        let UsageQuery { tenant, from, to, after, limit, .. } = query;
        let newest = match (after, to) {
            (Some(after), _) => {
                let job = JobId::new(&after);
                let job = job.map_err(|bad| EngineError::invalid("cursor", bad.problem.to_string()))?;
                Some(RecordKey::usage(&tenant, UsageOf::Job(job)).id)
            }
            // Jobs of the next day come before those of the last one.
            (None, Some(to)) => {
                let next = JobId::from_u128(u128::from(to.next().start().millis()) << 80);
                Some(RecordKey::usage(&tenant, UsageOf::Job(next)).id)
            }
            (None, None) => None,
        };
        let oldest = from.map_or(0, |from| u128::from(from.start().millis()) << 80);
        let mut rows = Vec::new();
        let is_last = self
            .each_sum(&tenant, JOB_USAGE, newest, |rest, sum| {
                let Some(job) = u128::from_str_radix(rest, 16).ok().map(|bits| !bits) else {
                    return Ok(true);
                };
                if job < oldest {
                    return Ok(false);
                }
                if rows.len() == limit {
                    return Err(Stop::Full);
                }
                rows.push(UsageRow { key: JobId::from_u128(job).to_string(), sum });
                Ok(true)
            })
            .await?;
        Ok(UsagePage { rows, is_last })
    }

    async fn usage_of_days(&self, query: UsageQuery) -> Result<UsagePage, EngineError> {
        let UsageQuery { tenant, from, to, after, limit, .. } = query;
        let after = after.map(|after| {
            Day::parse(&after).ok_or_else(|| EngineError::invalid("cursor", "is none of this list"))
        });
        let first = after.transpose()?.map(Day::next).max(from);
        let mut rows = Vec::new();
        let is_last = self
            .each_day(&tenant, first, to, |day, sum| {
                if rows.len() == limit {
                    return Err(Stop::Full);
                }
                rows.push(UsageRow { key: day.to_string(), sum });
                Ok(true)
            })
            .await?;
        Ok(UsagePage { rows, is_last })
    }

    async fn usage_of_tenant(&self, query: UsageQuery) -> Result<UsagePage, EngineError> {
        let UsageQuery { tenant, from, to, .. } = query;
        let mut sum = UsageSum::default();
        if from.is_none() && to.is_none() {
            sum = self.sum(RecordKey::usage(&tenant, UsageOf::Tenant)).await?.unwrap_or_default();
        } else {
            let add = |_, day: UsageSum| {
                sum = sum.and(&day);
                Ok(true)
            };
            self.each_day(&tenant, from, to, add).await?;
        }
        Ok(UsagePage { rows: vec![UsageRow { key: tenant.to_string(), sum }], is_last: true })
    }

    async fn usage_of_names(&self, query: UsageQuery) -> Result<UsagePage, EngineError> {
        let UsageQuery { tenant, after, limit, .. } = query;
        let after =
            after.map(|after| RecordKey::usage(&tenant, UsageOf::Definition(&TaskName::trusted(&after))).id);
        let mut rows = Vec::new();
        let is_last = self
            .each_sum(&tenant, DEFINITION_USAGE, after, |name, sum| {
                if rows.len() == limit {
                    return Err(Stop::Full);
                }
                rows.push(UsageRow { key: name.to_owned(), sum });
                Ok(true)
            })
            .await?;
        Ok(UsagePage { rows, is_last })
    }

    /// Names within some days: what is kept by day and name is added up.
    async fn usage_of_names_within(&self, query: UsageQuery) -> Result<UsagePage, EngineError> {
        let UsageQuery { tenant, from, to, after, limit, .. } = query;
        let mut sums: BTreeMap<String, UsageSum> = BTreeMap::new();
        let mut seen = 0;
        // No name is empty, so this sorts before all of the day.
        let nobody = TaskName::trusted("");
        let start = from.map(|day| RecordKey::usage(&tenant, UsageOf::DayAndDefinition(day, &nobody)).id);
        let is_all = self
            .each_sum(&tenant, DAY_AND_DEFINITION_USAGE, start, |rest, sum| {
                let Some((day, name)) = rest.split_once('/') else { return Ok(true) };
                if Day::parse(day) > to && to.is_some() {
                    return Ok(false);
                }
                seen += 1;
                if seen > USAGE_ROWS_MAX {
                    return Err(Stop::Full);
                }
                let known = sums.entry(name.to_owned()).or_default();
                *known = known.and(&sum);
                Ok(true)
            })
            .await?;
        if !is_all {
            let problem =
                format!("and to hold more than {USAGE_ROWS_MAX} sums between them; ask for fewer days");
            return Err(EngineError::invalid("from", problem));
        }
        let later = sums.into_iter().filter(|(name, _)| after.as_ref().is_none_or(|after| name > after));
        let mut rows: Vec<_> = later.map(|(key, sum)| UsageRow { key, sum }).collect();
        let is_last = rows.len() <= limit;
        rows.truncate(limit);
        Ok(UsagePage { rows, is_last })
    }

    async fn each_day(
        &self,
        tenant: &TenantId,
        from: Option<Day>,
        to: Option<Day>,
        mut each: impl FnMut(Day, UsageSum) -> Result<bool, Stop>,
    ) -> Result<bool, EngineError> {
        let start = from.map(|day| RecordKey::usage(tenant, UsageOf::Day(day.previous())).id);
        self.each_sum(tenant, DAY_USAGE, start, |rest, sum| match Day::parse(rest) {
            Some(day) if to.is_some_and(|to| day > to) => Ok(false),
            Some(day) => each(day, sum),
            None => Ok(true),
        })
        .await
    }

    /// Calls `each` with the sums whose ids begin with `prefix` and lie after `after`, until it says no. Says whether it
    /// saw all that it wanted.
    async fn each_sum(
        &self,
        tenant: &TenantId,
        prefix: &str,
        after: Option<Arc<str>>,
        mut each: impl FnMut(&str, UsageSum) -> Result<bool, Stop>,
    ) -> Result<bool, EngineError> {
        let mut from = Some(after.unwrap_or_else(|| Arc::from(prefix)));
        loop {
            let (kind, tenant) = (RecordKind::Usage, Some(tenant.clone()));
            let records = self.inner.backend.records(kind, tenant, from.take(), LIST_MAX).await?;
            let is_last = records.len() < LIST_MAX;
            for (key, record) in records {
                let Some(rest) = key.id.strip_prefix(prefix) else { return Ok(true) };
                if let RecordValue::Usage(sum) = record.value {
                    match each(rest, sum) {
                        Ok(true) => {}
                        Ok(false) => return Ok(true),
                        Err(Stop::Full) => return Ok(false),
                    }
                }
                from = Some(Arc::clone(&key.id));
            }
            if is_last {
                return Ok(true);
            }
        }
    }

    async fn sum(&self, key: RecordKey) -> Result<Option<UsageSum>, EngineError> {
        Ok(match self.inner.backend.record(key).await?.map(|record| record.value) {
            Some(RecordValue::Usage(sum)) => Some(sum),
            _ => None,
        })
    }
}

/// Why a look at sums ends before the last one that was wanted.
enum Stop {
    Full,
}
