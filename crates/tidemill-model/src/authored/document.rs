//! Reading what a client wrote, field by field, until every problem is known.
//!
//! `null` stands for a field that is left out. What nobody asked for is an unknown field.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::authored::field_problem::{FieldProblems, code};
use crate::authored::fields::Fields;
use crate::authored::job_file::Tasks;
use crate::authored::nearest::unknown_field;
use crate::values::json::Json;
use crate::values::span::{Millis, parse_millis};
use crate::work::runner_spec::{Run, check_env, check_labels, check_run, entry_path};

/// An object being read.
pub struct Document<'p> {
    fields: Map<String, Value>,
    /// The field `input`, if it is carried as text.
    input: Option<Json>,
    /// The field `tasks`, if its entries were read one by one.
    tasks: Tasks,
    /// Where the object stands, such as `tasks[3]`; empty for the outermost.
    place: String,
    pub problems: &'p mut FieldProblems,
}

impl<'p> Document<'p> {
    /// Begins to read; anything but an object is a problem.
    pub fn open(place: impl Into<String>, value: Value, problems: &'p mut FieldProblems) -> Option<Self> {
        let place = place.into();
        match value {
            Value::Object(fields) => Some(Self::of(place, fields, None, Tasks::Missing, problems)),
            other => {
                problems.add(place, code::INVALID_TYPE, format!("must be an object, not {}", kind(&other)));
                None
            }
        }
    }

    /// An object whose fields were read elsewhere.
    pub(crate) fn of(
        place: String,
        fields: Map<String, Value>,
        input: Option<Json>,
        tasks: Tasks,
        problems: &'p mut FieldProblems,
    ) -> Self {
        Self { fields, input, tasks, place, problems }
    }

    /// The full path of a field.
    pub fn path(&self, field: &str) -> String {
        if self.place.is_empty() { field.to_owned() } else { format!("{}.{field}", self.place) }
    }

    pub fn problem(&mut self, field: &str, code: &'static str, message: impl Into<String>) {
        let path = self.path(field);
        self.problems.add(path, code, message);
    }

    /// A problem with the object as a whole.
    pub(crate) fn problem_here(&mut self, code: &'static str, message: impl Into<String>) {
        self.problems.add(self.place.clone(), code, message);
    }

    pub fn take(&mut self, field: &str) -> Option<Value> {
        self.fields.remove(field).filter(|value| !value.is_null())
    }

    pub fn has(&self, field: &str) -> bool {
        self.fields.get(field).is_some_and(|value| !value.is_null())
    }

    pub fn get(&self, field: &str) -> Option<&Value> {
        self.fields.get(field)
    }

    /// Whether a field is there, be it null.
    pub fn mentions(&self, field: &str) -> bool {
        self.fields.contains_key(field)
    }

    /// Everything that is left is unknown.
    pub fn close(self, known: &str) {
        self.close_knowing(|| known.split(", ").collect());
    }

    /// The same for an object that has the fields of `T`.
    pub(crate) fn close_as<T: Fields>(self) {
        self.close_knowing(T::names);
    }

    fn close_knowing<'a>(self, known: impl Fn() -> Vec<&'a str>) {
        for name in self.fields.keys() {
            if self.problems.is_full() {
                return;
            }
            let path = if self.place.is_empty() {
                entry_path("", name).trim_start_matches('.').to_owned()
            } else {
                entry_path(&self.place, name)
            };
            self.problems.add(path, code::UNKNOWN_FIELD, unknown_field(name, known()));
        }
    }

    pub fn missing(&mut self, field: &str) {
        self.problem(field, code::MISSING_FIELD, "is missing");
    }

    pub fn text(&mut self, field: &str) -> Option<String> {
        match self.take(field)? {
            Value::String(text) => Some(text),
            other => {
                self.problem(field, code::INVALID_TYPE, format!("must be a text, not {}", kind(&other)));
                None
            }
        }
    }

    /// A text of at most `max` bytes that is not empty and holds no control character.
    pub fn short_text(&mut self, field: &str, max: usize) -> Option<String> {
        let text = self.text(field)?;
        if text.is_empty() {
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

    /// A text that may have several lines, of at most `max` bytes.
    pub fn long_text(&mut self, field: &str, max: usize) -> Option<String> {
        let text = self.text(field)?;
        if text.len() > max {
            self.problem(field, code::TOO_LONG, format!("is {} bytes; the limit is {max}", text.len()));
            return None;
        }
        Some(text)
    }

    pub fn number(&mut self, field: &str, range: RangeInclusive<u64>) -> Option<u64> {
        let value = self.take(field)?;
        let whole = match &value {
            Value::Number(_) => parse_millis(&value).ok(),
            _ => None,
        };
        let Some(number) = whole else {
            let shown = if value.is_number() { value.to_string() } else { kind(&value).to_owned() };
            self.problem(field, code::INVALID_TYPE, format!("must be a whole number, not {shown}"));
            return None;
        };
        self.within(field, number, &number.to_string(), range, |limit| limit.to_string())
    }

    /// A whole number that is not large.
    pub(crate) fn count(&mut self, field: &str, range: RangeInclusive<u32>) -> Option<u32> {
        let (min, max) = range.into_inner();
        self.number(field, min.into()..=max.into()).and_then(|number| u32::try_from(number).ok())
    }

    pub fn span(&mut self, field: &str, range: RangeInclusive<u64>) -> Option<Millis> {
        let span = self.any_span(field)?;
        self.span_within(field, span, range)
    }

    /// A span of which something else says how long it may be.
    pub(crate) fn any_span(&mut self, field: &str) -> Option<Millis> {
        let value = self.take(field)?;
        parse_millis(&value)
            .map(Millis)
            .map_err(|message| self.problem(field, code::INVALID_VALUE, message))
            .ok()
    }

    /// `span`, if it is as long as it may be.
    pub(crate) fn span_within(
        &mut self,
        field: &str,
        span: Millis,
        range: RangeInclusive<u64>,
    ) -> Option<Millis> {
        let show = |limit| Millis(limit).to_string();
        self.within(field, span.0, &span.to_string(), range, show).map(Millis)
    }

    fn within(
        &mut self,
        field: &str,
        number: u64,
        shown: &str,
        range: RangeInclusive<u64>,
        show: impl Fn(u64) -> String,
    ) -> Option<u64> {
        if range.contains(&number) {
            return Some(number);
        }
        let (low, high) = (show(*range.start()), show(*range.end()));
        self.problem(field, code::OUT_OF_RANGE, format!("is {shown}; it must be from {low} to {high}"));
        None
    }

    pub fn flag(&mut self, field: &str) -> Option<bool> {
        match self.take(field)? {
            Value::Bool(flag) => Some(flag),
            other => {
                self.problem(
                    field,
                    code::INVALID_TYPE,
                    format!("must be true or false, not {}", kind(&other)),
                );
                None
            }
        }
    }

    pub fn list(&mut self, field: &str) -> Option<Vec<Value>> {
        match self.take(field)? {
            Value::Array(items) => Some(items),
            other => {
                self.problem(field, code::INVALID_TYPE, format!("must be a list, not {}", kind(&other)));
                None
            }
        }
    }

    /// A list of texts.
    pub fn texts(&mut self, field: &str) -> Option<Vec<String>> {
        let items = self.list(field)?;
        Some(self.texts_of(field, items))
    }

    /// A list of at most `max` names, each of which `check` may refuse.
    pub(crate) fn names(
        &mut self,
        field: &str,
        max: usize,
        check: impl Fn(&str) -> Result<(), (&'static str, String)>,
    ) -> Vec<String> {
        let names = self.texts(field).unwrap_or_default();
        if names.len() > max {
            let message = format!("has {} names; the limit is {max}", names.len());
            self.problem(field, code::TOO_LONG, message);
        }
        for (at, name) in names.iter().enumerate() {
            if let Err((code, message)) = check(name) {
                self.problem(&format!("{field}[{at}]"), code, message);
            }
        }
        names
    }

    fn texts_of(&mut self, field: &str, items: Vec<Value>) -> Vec<String> {
        let mut texts = Vec::with_capacity(items.len());
        for (at, item) in items.into_iter().enumerate() {
            if self.problems.is_full() {
                break;
            }
            match item {
                Value::String(text) => texts.push(text),
                other => {
                    let message = format!("must be a text, not {}", kind(&other));
                    self.problem(&format!("{field}[{at}]"), code::INVALID_TYPE, message);
                }
            }
        }
        texts
    }

    /// Names with texts as their values.
    fn text_map(&mut self, field: &str) -> Option<BTreeMap<String, String>> {
        let fields = match self.take(field)? {
            Value::Object(fields) => fields,
            other => {
                self.problem(field, code::INVALID_TYPE, format!("must be an object, not {}", kind(&other)));
                return None;
            }
        };
        let mut map = BTreeMap::new();
        for (name, value) in fields {
            match value {
                Value::String(text) => drop(map.insert(name, text)),
                other => {
                    let path = entry_path(&self.path(field), &name);
                    let message = format!("must be a text, not {}: put it in quotes", kind(&other));
                    self.problems.add(path, code::INVALID_TYPE, message);
                }
            }
        }
        Some(map)
    }

    pub fn env(&mut self, field: &str) -> BTreeMap<String, String> {
        let env = self.text_map(field).unwrap_or_default();
        check_env(&self.path(field), &env, self.problems);
        env
    }

    pub fn labels(&mut self, field: &str) -> BTreeMap<String, String> {
        let labels = self.text_map(field).unwrap_or_default();
        check_labels(&self.path(field), &labels, self.problems);
        labels
    }

    /// A command: a list of arguments or one text for the shell.
    pub fn run(&mut self, field: &str) -> Option<Run> {
        let run = match self.take(field)? {
            Value::String(text) => Run::Shell(text),
            Value::Array(items) => {
                let count = items.len();
                let arguments = self.texts_of(field, items);
                if arguments.len() < count {
                    return None;
                }
                Run::Argv(arguments)
            }
            other => {
                let message =
                    format!("must be a list of arguments or one text for the shell, not {}", kind(&other));
                self.problem(field, code::INVALID_TYPE, message);
                return None;
            }
        };
        check_run(&self.path(field), &run, self.problems);
        Some(run)
    }

    /// Any value as JSON.
    pub fn json(&mut self, field: &str) -> Option<Json> {
        if field == "input" && self.input.is_some() {
            return self.input.take();
        }
        self.take(field).map(|value| Json::of(&value))
    }

    /// The tasks of a job file.
    pub(crate) fn tasks(&mut self) -> Tasks {
        std::mem::take(&mut self.tasks)
    }
}

/// What a value is, in a word.
pub fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
