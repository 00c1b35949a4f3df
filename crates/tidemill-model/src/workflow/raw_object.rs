//! Objects of raw JSON, read field by field until every problem is known.
//!
//! `null` stands for a field that is left out. Fields that nobody asks for stay: the contract is open.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::contract::WorkflowStatus;
use super::token::{TOKEN_FIELD, TaskToken};
use crate::authored::field_problem::{FieldProblems, code};
use crate::security::sanitize::REDACTED;
use crate::values::day::Day;
use crate::values::id::{BadId, IdProblem};
use crate::values::json::Fields;
use crate::values::time::Timestamp;

pub(super) const SECOND_MILLIS: u64 = 1_000;

/// A moment, and how well it is known.
#[derive(Clone, Copy)]
pub(super) struct Moment {
    pub(super) at: Timestamp,
    pub(super) whole_second: bool,
}

/// An object of raw values being read. `null` stands for a field that is left out; fields that nobody asks for stay.
pub(super) struct Reader<'j, 'p> {
    pub(super) fields: Vec<(Cow<'j, str>, &'j RawValue)>,
    place: String,
    pub(super) problems: &'p mut FieldProblems,
}

impl<'j, 'p> Reader<'j, 'p> {
    pub(super) fn open(place: &str, text: &'j str, problems: &'p mut FieldProblems) -> Option<Self> {
        if let Ok(Fields(fields)) = serde_json::from_str::<Fields<'j>>(text) {
            return Some(Self { fields, place: place.to_owned(), problems });
        }
        let found = serde_json::from_str::<&RawValue>(text).map_or("invalid JSON", kind_of);
        problems.add(place, code::INVALID_TYPE, format!("must be an object, not {found}"));
        None
    }

    pub(super) fn path(&self, field: &str) -> String {
        match (self.place.is_empty(), field.is_empty()) {
            (true, _) => field.to_owned(),
            (_, true) => self.place.clone(),
            _ => format!("{}.{field}", self.place),
        }
    }

    pub(super) fn problem(&mut self, field: &str, code: &'static str, message: impl Into<String>) {
        let path = self.path(field);
        self.problems.add(path, code, message);
    }

    pub(super) fn missing(&mut self, field: &str) {
        self.problem(field, code::MISSING_FIELD, "is missing");
    }

    pub(super) fn has(&self, field: &str) -> bool {
        self.fields.iter().any(|(name, value)| name == field && value.get() != "null")
    }

    /// The value of a field. A field that stands twice is a problem: nobody could say which one is meant.
    pub(super) fn raw(&mut self, field: &str) -> Option<&'j RawValue> {
        let mut found = self.fields.iter().filter(|(name, _)| name == field).map(|(_, value)| *value);
        let first = found.next();
        if found.next().is_some() {
            self.problem(field, code::INVALID_VALUE, "stands twice");
            return None;
        }
        first.filter(|value| value.get() != "null")
    }

    fn plain_text(&mut self, field: &str) -> Option<String> {
        let raw = self.raw(field)?;
        let text = serde_json::from_str::<String>(raw.get()).ok();
        if text.is_none() {
            let message = format!("must be a text, not {}", kind_of(raw));
            self.problem(field, code::INVALID_TYPE, message);
        }
        text
    }

    /// A text of at most `max` bytes that is not empty and holds no control character.
    pub(super) fn text(&mut self, field: &str, max: usize) -> Option<String> {
        let text = self.plain_text(field)?;
        if text.trim().is_empty() {
            self.problem(field, code::INVALID_VALUE, "is empty");
        } else if text.len() > max {
            self.problem(field, code::TOO_LONG, format!("is {} bytes; the limit is {max}", text.len()));
        } else if text.chars().any(char::is_control) {
            self.problem(field, code::INVALID_VALUE, "holds a control character");
        } else {
            return Some(text);
        }
        None
    }

    pub(super) fn required_text(&mut self, field: &str, max: usize) -> Option<String> {
        if !self.has(field) {
            self.missing(field);
            return None;
        }
        self.text(field, max)
    }

    pub(super) fn id<T>(
        &mut self,
        field: &str,
        new: fn(String) -> Result<T, BadId>,
        required: bool,
    ) -> Option<T> {
        if required && !self.has(field) {
            self.missing(field);
            return None;
        }
        let text = self.plain_text(field)?;
        new(text).map_err(|bad| self.bad_id(field, &bad.problem)).ok()
    }

    fn bad_id(&mut self, field: &str, problem: &IdProblem) {
        let code =
            if matches!(problem, IdProblem::TooLong { .. }) { code::TOO_LONG } else { code::INVALID_VALUE };
        self.problem(field, code, problem.to_string());
    }

    /// The token. An empty one is none, unless the execution waits: then the sender meant to give one.
    pub(super) fn token(&mut self, status: Option<WorkflowStatus>) -> Option<TaskToken> {
        let text = self.plain_text(TOKEN_FIELD)?;
        if text.is_empty() && status != Some(WorkflowStatus::Failed) {
            return None;
        }
        if text == REDACTED {
            self.problem(
                TOKEN_FIELD,
                code::INVALID_VALUE,
                "was taken out of this event: send the token itself",
            );
            return None;
        }
        TaskToken::new(text).map_err(|bad| self.bad_id(TOKEN_FIELD, &bad.problem)).ok()
    }

    /// Epoch milliseconds, or a time such as `2026-11-15T20:00:00Z`.
    pub(super) fn time(&mut self, field: &str) -> Option<Moment> {
        let raw = self.raw(field)?;
        let millis = raw.get().parse::<u64>().ok();
        let moment = match millis {
            Some(millis) => {
                let at = Timestamp::new("time", millis).ok();
                at.map(|at| Moment { at, whole_second: false })
            }
            None => serde_json::from_str::<String>(raw.get()).ok().and_then(|text| parse_time(&text)),
        };
        if moment.is_none() {
            let message = "must be epoch milliseconds or a time such as 2026-11-15T20:00:00Z";
            self.problem(field, code::INVALID_VALUE, message);
        }
        moment
    }
}

pub(super) fn kind_of(raw: &RawValue) -> &'static str {
    match raw.get().as_bytes().first() {
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b'"') => "a text",
        Some(b't' | b'f') => "a boolean",
        Some(b'n') => "null",
        _ => "a number",
    }
}

/// Reads `2026-11-15T20:00:00Z`, with a fraction of a second and an offset if there are any.
fn parse_time(text: &str) -> Option<Moment> {
    let (date, rest) = text.split_once(['T', 't', ' '])?;
    let start = Day::parse(date)?.start().millis();
    let zone_at = rest.find(['Z', 'z', '+', '-'])?;
    let (clock, zone) = rest.split_at(zone_at);
    let (whole, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let seconds = parse_clock(whole)?;
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if clock.ends_with('.') || !digits(fraction) {
        return None;
    }
    let millis: u64 = format!("{fraction:0<3}").get(..3)?.parse().ok()?;
    let (ahead, behind) = match zone {
        "Z" | "z" => (0, 0),
        _ => {
            let (sign, offset) = zone.split_at(1);
            let (hours, minutes) = offset.split_once(':')?;
            let seconds = parse_clock(&format!("{hours}:{minutes}:00"))?;
            if sign == "+" { (seconds, 0) } else { (0, seconds) }
        }
    };
    let at = (start + seconds * SECOND_MILLIS + millis + behind * SECOND_MILLIS)
        .checked_sub(ahead * SECOND_MILLIS)?;
    Some(Moment { at: Timestamp::new("time", at).ok()?, whole_second: fraction.is_empty() })
}

/// The seconds of `20:00:00`; a leap second counts as the next one.
fn parse_clock(text: &str) -> Option<u64> {
    let mut parts = text.split(':');
    let mut part = |max: u64| -> Option<u64> {
        let text =
            parts.next().filter(|text| text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit()))?;
        text.parse().ok().filter(|number| *number <= max)
    };
    let (hours, minutes, seconds) = (part(23)?, part(59)?, part(60)?);
    parts.next().is_none().then_some(hours * 3_600 + minutes * 60 + seconds)
}
