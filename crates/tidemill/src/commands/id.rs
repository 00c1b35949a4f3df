//! Ids as people type them: whole, or as much of them as tells them apart, and `JOB/TASK`.
//!
//! A whole id costs nothing. Parts are looked up in the lists of the caller's own tenant, so they never name what is not
//! theirs.

use tidemill_api as api;

use super::CommandError;
use crate::client::{Call, Client, ClientError, Item, Query, encode, local_problem};

/// How many jobs or tasks are looked at for a part of an id.
const LOOKED_AT_MAX: usize = 1_000;
/// How many are named when several fit.
const NAMED_MAX: usize = 5;
/// Fewer digits are more likely a slip than an id.
const PART_DIGITS_MIN: usize = 4;
/// The digits of an id, and those of them that say when it was made, in milliseconds.
const DIGITS: usize = 32;
const TIME_DIGITS: usize = 12;
/// A job is created a little later than its id is made.
const SLACK_MILLIS: u64 = 60_000;
/// The moments that lists can be asked for.
const MOMENTS: (u64, u64) = (1_000_000_000_000, 9_999_999_999_999);

/// A part of an id: how it begins and how it ends, with `…` between the two as in tables and pages.
#[derive(Debug, PartialEq, Eq)]
struct Part<'a> {
    head: &'a str,
    tail: &'a str,
}

impl<'a> Part<'a> {
    /// What was typed, if it can be a part of such an id or all of it. `kind` is what these ids begin with.
    fn of(given: &'a str, kind: &str) -> Option<Self> {
        let digits = given.strip_prefix(kind).unwrap_or(given);
        let (head, tail) =
            digits.split_once('…').or_else(|| digits.split_once("...")).unwrap_or((digits, ""));
        let are_digits = |text: &str| text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        let count = head.len() + tail.len();
        let fits = are_digits(head) && are_digits(tail) && (PART_DIGITS_MIN..=DIGITS).contains(&count);
        fits.then_some(Self { head, tail })
    }

    fn is_whole(&self) -> bool {
        self.head.len() == DIGITS
    }

    fn fits(&self, digits: &str) -> bool {
        digits.starts_with(self.head) && digits.ends_with(self.tail)
    }

    /// When such ids were made: the first and the last moment.
    fn made(&self) -> (u64, u64) {
        let known = &self.head[..self.head.len().min(TIME_DIGITS)];
        let moment = |fill: &str| {
            let digits = format!("{known}{}", fill.repeat(TIME_DIGITS - known.len()));
            u64::from_str_radix(&digits, 16).unwrap_or(0)
        };
        let within = |millis: u64| millis.clamp(MOMENTS.0, MOMENTS.1);
        (within(moment("0").saturating_sub(SLACK_MILLIS)), within(moment("f") + SLACK_MILLIS))
    }
}

/// The whole id of a job.
pub(super) async fn job(client: &Client, given: &str) -> Result<String, CommandError> {
    // What cannot be a part of an id is for the server to refuse.
    let Some(part) = Part::of(given, "job-") else { return Ok(given.to_owned()) };
    if part.is_whole() {
        return Ok(format!("job-{}", part.head));
    }
    let (from, to) = part.made();
    let query = Query::new().set("from", from).set("to", to);
    let jobs: Vec<api::JobSummary> = client.list("/v1/jobs", &query, LOOKED_AT_MAX).await?;
    only("job", given, &part, jobs.into_iter().map(|job| job.job_id), "job-")
}

/// The whole id of a task: its request id.
pub(super) async fn task(client: &Client, given: &str) -> Result<String, CommandError> {
    // A task of a job, as `JOB/TASK` or with the underscore of its request id.
    let of_job = given.split_once('/').or_else(|| {
        let (job, task) = given.split_once('_')?;
        job.starts_with("job-").then_some((job, task))
    });
    if let Some((of, task)) = of_job {
        return Ok(format!("{}_{task}", job(client, of).await?));
    }
    let Some(part) = Part::of(given, "req-") else { return Ok(given.to_owned()) };
    if part.is_whole() {
        return Ok(if given.starts_with("req-") { given.to_owned() } else { format!("req-{}", part.head) });
    }
    // A user who chooses ids may choose one that looks like a part.
    let path = format!("/v1/tasks/{}", encode(given));
    match client.bytes(Call::get(path)).await {
        Ok(_) => return Ok(given.to_owned()),
        Err(error) if error.code() == Some("NOT_FOUND") => {}
        Err(error) => return Err(error.into()),
    }
    let tasks: Vec<Item> = client.list("/v1/tasks", &Query::new(), LOOKED_AT_MAX).await?;
    only("task", given, &part, tasks.into_iter().map(|task| task.text("requestId")), "req-")
}

/// The whole id of an execution, which is that of a task if a task is meant.
pub(super) async fn execution(client: &Client, given: &str) -> Result<String, CommandError> {
    // Other systems choose ids of executions as they like, so only what can name a job is taken for one.
    match given.split_once('/') {
        Some((of, _)) if Part::of(of, "job-").is_some() => task(client, given).await,
        _ => Ok(given.to_owned()),
    }
}

/// The only one that fits.
fn only(
    what: &str,
    given: &str,
    part: &Part<'_>,
    ids: impl Iterator<Item = String>,
    kind: &str,
) -> Result<String, CommandError> {
    let mut looked_at = 0;
    let fitting = ids
        .inspect(|_| looked_at += 1)
        .filter(|id| id.strip_prefix(kind).is_some_and(|digits| part.fits(digits)));
    let mut fitting: Vec<_> = fitting.collect();
    let refused = |status, code, detail| {
        Err(CommandError::Answer(ClientError::Problem(Box::new(local_problem(status, code, detail)))))
    };
    match fitting.len() {
        0 => refused(404, "NOT_FOUND", format!("no {what} has an id like {given}")),
        // Others of its kind were not looked at, and may fit as well.
        1 if looked_at >= LOOKED_AT_MAX => refused(
            400,
            "AMBIGUOUS_ID",
            format!("{given} is too short to tell {what}s apart; give more of the id"),
        ),
        1 => Ok(fitting.remove(0)),
        several => {
            let more = several.saturating_sub(NAMED_MAX);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            fitting.truncate(NAMED_MAX);
            let named = fitting.join(", ");
            refused(400, "AMBIGUOUS_ID", format!("{given} fits {several} {what}s: {named}{more}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::HttpClient;

    #[test]
    fn parts_of_ids_are_known_from_other_words() {
        let part = |head, tail| Some(Part { head, tail });
        for (given, expected) in [
            ("job-01a1", part("01a1", "")),
            ("01a1", part("01a1", "")),
            ("job-01a1…c3d4e5", part("01a1", "c3d4e5")),
            ("01a1...c3", part("01a1", "c3")),
            ("…c3d4", part("", "c3d4")),
            ("job-01a", None),
            ("…c3", None),
            ("job-", None),
            ("", None),
            ("nightly", None),
            ("01A1", None),
            ("job-01a1_x", None),
            ("0123456789abcdef0123456789abcdef0", None),
        ] {
            assert_eq!(Part::of(given, "job-"), expected, "{given}");
        }
    }

    #[tokio::test]
    async fn a_whole_id_asks_nobody() {
        let nobody = Client::Http(Box::new(HttpClient::new("http://127.0.0.1:1", None).unwrap()));
        let (digits, whole) = ("0123456789abcdef".repeat(2), "job-0123456789abcdef0123456789abcdef");
        for given in [whole, &digits, "nightly"] {
            let expected = if given == digits { whole } else { given };
            assert_eq!(job(&nobody, given).await.unwrap(), expected);
        }
        let (of_job, alone) = (format!("{whole}_a"), format!("req-{digits}"));
        for (given, expected) in [
            (of_job.as_str(), of_job.as_str()),
            (&format!("{whole}/a"), &of_job),
            (&format!("{digits}/a"), &of_job),
            (&alone, &alone),
            (&digits, &alone),
            ("my-own-id", "my-own-id"),
        ] {
            assert_eq!(task(&nobody, given).await.unwrap(), expected);
        }
        for (given, expected) in [
            (format!("{whole}/a"), of_job.as_str()),
            (of_job.clone(), of_job.as_str()),
            (
                "arn:aws:states:eu-west-1:1:execution:m/x".to_owned(),
                "arn:aws:states:eu-west-1:1:execution:m/x",
            ),
            ("01a1".to_owned(), "01a1"),
        ] {
            assert_eq!(execution(&nobody, &given).await.unwrap(), expected);
        }
        assert!(job(&nobody, "01a1").await.is_err(), "a part has to be looked up");
    }

    #[test]
    fn a_part_says_when_its_ids_were_made() {
        // 0x01a1b2c3d4e5 is a moment of 2026.
        let at = 0x01a1_b2c3_d4e5;
        for (head, expected) in [
            ("01a1b2c3d4e5", (at - SLACK_MILLIS, at + SLACK_MILLIS)),
            ("01a1b2c3d4e56789", (at - SLACK_MILLIS, at + SLACK_MILLIS)),
            ("01a1b2c3d4", (0x01a1_b2c3_d400 - SLACK_MILLIS, 0x01a1_b2c3_d4ff + SLACK_MILLIS)),
            ("", MOMENTS),
            ("f", (MOMENTS.1, MOMENTS.1)),
        ] {
            assert_eq!(Part { head, tail: "" }.made(), expected, "{head}");
        }
    }

    #[test]
    fn only_what_is_unique_is_taken() {
        let ids = |count: usize| (0..count).map(|n| format!("job-{n:032x}"));
        let told = |head: &str, tail: &str, count| {
            only("job", "01a1", &Part { head, tail }, ids(count), "job-").map_err(|error| error.to_string())
        };
        assert_eq!(told("", "5", 10), Ok(format!("job-{:032x}", 5)));
        assert_eq!(told("f", "", 10), Err("no job has an id like 01a1 (NOT_FOUND)".to_owned()));
        let several = told("", "1", 34).unwrap_err();
        assert!(
            several.starts_with("01a1 fits 3 jobs: job-0") && several.ends_with(" (AMBIGUOUS_ID)"),
            "{several}"
        );
        assert!(told("0", "", 10).unwrap_err().contains("and 5 more"));
        assert!(told("", "3e7", 1_000).unwrap_err().contains("too short"));
    }
}
