//! Whether this machine's clock is that of AWS, near enough for leases.

use std::sync::{Arc, Mutex, PoisonError};

use aws_sdk_dynamodb::config::interceptors::BeforeDeserializationInterceptorContextRef;
use aws_sdk_dynamodb::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_sdk_dynamodb::error::BoxError;
use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use tidemill_engine::backend::Fault;
use tidemill_engine::clock::Clock;

use crate::connection::Connection;
use crate::fault::unavailable;
use crate::table::item::key_of;

/// A lease lasts half as long again as its worker believes. A clock that is further off than that half would undo it.
const SKEW_MILLIS_MAX: i64 = 15_000;

/// Keeps the time that an answer carries.
#[derive(Debug, Clone, Default)]
struct DateKeeper(Arc<Mutex<Option<i64>>>);

impl Intercept for DateKeeper {
    fn name(&self) -> &'static str {
        "DateKeeper"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _: &RuntimeComponents,
        _: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date");
        let date = date.and_then(|date| DateTime::from_str(date, DateTimeFormat::HttpDate).ok());
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = date.and_then(|date| date.to_millis().ok());
        Ok(())
    }
}

/// How far the clock is ahead of AWS, in milliseconds. Refuses one that is too far off.
pub(crate) async fn check(connection: &Connection, table: &str, clock: &dyn Clock) -> Result<i64, Fault> {
    let dates = DateKeeper::default();
    let asked_at = clock.now().millis();
    let get = connection.dynamo.get_item().table_name(table).set_key(Some(key_of("CURSOR", "CLOCK")));
    let asked = get.customize().interceptor(dates.clone()).send().await;
    asked.map_err(|error| unavailable("GetItem", error))?;
    let answered_at = clock.now().millis();
    let date = *dates.0.lock().unwrap_or_else(PoisonError::into_inner);
    // An answer without a time says nothing.
    let Some(date) = date else { return Ok(0) };
    let skew = skew(asked_at, answered_at, date);
    if skew.abs() > SKEW_MILLIS_MAX {
        let way = if skew > 0 { "ahead of" } else { "behind" };
        let problem = format!(
            "the clock of this machine is {} s {way} that of AWS; more than {} s would break leases: set the clock",
            skew.abs() / 1_000,
            SKEW_MILLIS_MAX / 1_000
        );
        return Err(Fault::Unavailable(problem));
    }
    Ok(skew)
}

/// How far our moments are from a date that is known to the second, were it the nearest that it may be.
fn skew(asked_at: u64, answered_at: u64, date: i64) -> i64 {
    let [asked_at, answered_at] = [asked_at, answered_at].map(|at| i64::try_from(at).unwrap_or(i64::MAX));
    if asked_at > date + 999 {
        asked_at - date - 999
    } else if answered_at < date {
        answered_at - date
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_is_right_if_it_may_be() {
        for (asked_at, answered_at, expected) in [
            (10_000, 10_500, 0),
            (10_999, 11_000, 0),
            (11_000, 11_200, 1),
            (8_000, 9_500, -500),
            (9_000, 12_000, 0), // the answer took its time
            (27_000, 27_001, 16_001),
        ] {
            assert_eq!(skew(asked_at, answered_at, 10_000), expected, "{asked_at} {answered_at}");
        }
    }
}
