//! Kinds of fields that several objects have: how each is read, beside the schema that says the same.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::Value;

use crate::authored::definition::SECRETS_MAX;
use crate::authored::document::Document;
use crate::authored::field_problem::code;
use crate::authored::fields::{Part, field};
use crate::values::span::Millis;
use crate::work::runner_spec::{PATH_DIRECTORIES_MAX, Run, check_path, is_variable_name};
use crate::work::task_secrets::is_own_variable;

/// The schema of a type.
pub(crate) fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// The schema of a type with further keywords.
pub(crate) fn schema_with<T: JsonSchema>(
    keywords: impl IntoIterator<Item = (&'static str, Value)>,
) -> impl FnOnce(&mut SchemaGenerator) -> Schema {
    move |generator| {
        let mut schema = schema_of::<T>(generator);
        for (keyword, value) in keywords {
            schema.insert(keyword.to_owned(), value);
        }
        schema
    }
}

/// A text of one line.
pub(crate) fn short_text(name: &'static str, max: usize) -> impl Part<Value = Option<String>> {
    let bounds = [("minLength", 1.into()), ("maxLength", max.into())];
    field(
        name,
        move |document: &mut Document<'_>, name| document.short_text(name, max),
        schema_with::<Option<String>>(bounds),
    )
}

/// A text that may have several lines.
pub(crate) fn long_text(name: &'static str, max: usize) -> impl Part<Value = Option<String>> {
    field(
        name,
        move |document: &mut Document<'_>, name| document.long_text(name, max),
        schema_with::<Option<String>>([("maxLength", max.into())]),
    )
}

pub(crate) fn span(name: &'static str, range: RangeInclusive<u64>) -> impl Part<Value = Option<Millis>> {
    field(
        name,
        move |document: &mut Document<'_>, name| document.span(name, range),
        schema_of::<Option<Millis>>,
    )
}

pub(crate) fn count(name: &'static str, range: RangeInclusive<u32>) -> impl Part<Value = Option<u32>> {
    let (min, max) = range.into_inner();
    field(
        name,
        move |document: &mut Document<'_>, name| document.count(name, min..=max),
        schema_with::<Option<u32>>([("minimum", min.into()), ("maximum", max.into())]),
    )
}

pub(crate) fn flag(name: &'static str) -> impl Part<Value = Option<bool>> {
    field(name, |document: &mut Document<'_>, name| document.flag(name), schema_of::<Option<bool>>)
}

/// A flag that is `default` when it is left out.
pub(crate) fn flag_or(name: &'static str, default: bool) -> impl Part<Value = bool> {
    field(
        name,
        move |document: &mut Document<'_>, name| document.flag(name).unwrap_or(default),
        schema_of::<Option<bool>>,
    )
}

/// A command that may be left out.
pub(crate) fn run(name: &'static str) -> impl Part<Value = Option<Run>> {
    field(name, |document: &mut Document<'_>, name| document.run(name), schema_of::<Option<Run>>)
}

/// Variables of an environment.
pub(crate) fn env() -> impl Part<Value = BTreeMap<String, String>> {
    field(
        "env",
        |document: &mut Document<'_>, name| document.env(name),
        schema_of::<Option<BTreeMap<String, String>>>,
    )
}

pub(crate) fn labels() -> impl Part<Value = BTreeMap<String, String>> {
    field(
        "labels",
        |document: &mut Document<'_>, name| document.labels(name),
        schema_of::<Option<BTreeMap<String, String>>>,
    )
}

/// Names of variables of the worker's environment that the task is given.
pub(crate) fn secrets() -> impl Part<Value = Vec<String>> {
    let read = |document: &mut Document<'_>, field| {
        document.names(field, SECRETS_MAX, |name| {
            if !is_variable_name(name) {
                Err((code::INVALID_VALUE, "is no name of a variable".to_owned()))
            } else if is_own_variable(name) {
                let message = "belongs to the worker itself and cannot be handed over";
                Err((code::RESERVED_VARIABLE, message.to_owned()))
            } else {
                Ok(())
            }
        })
    };
    field("secrets", read, schema_with::<Option<Vec<String>>>([("maxItems", SECRETS_MAX.into())]))
}

/// Directories that come before those of `PATH`.
pub(crate) fn path() -> impl Part<Value = Vec<String>> {
    let read = |document: &mut Document<'_>, name| {
        let directories = document.texts(name).unwrap_or_default();
        check_path(&document.path(name), &directories, document.problems);
        directories
    };
    field("path", read, schema_with::<Option<Vec<String>>>([("maxItems", PATH_DIRECTORIES_MAX.into())]))
}
