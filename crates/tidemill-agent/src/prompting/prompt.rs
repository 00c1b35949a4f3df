//! Prompt templates: `{{path}}` is replaced once, from the input and the outputs of earlier steps.
//!
//! What a value holds is never looked at again, so a value that reads `{{path}}` stays as it is.

use serde_json::{Map, Value};

use crate::prompting::prompt_input::CleanValue;

/// The bytes of a prompt with its values.
pub(crate) const PROMPT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// What a placeholder may name.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sources<'a> {
    pub(crate) input: &'a Value,
    /// The outputs of earlier steps, in their order.
    pub(crate) outputs: &'a [(String, Value)],
}

/// A prompt ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Prompt {
    pub(crate) text: String,
    /// Placeholders whose values were cut.
    pub(crate) cut: Vec<String>,
}

/// Why a template cannot be filled in.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadTemplate {
    #[error(
        "{{{{{0}}}}} is not there: the input has no such value, and no earlier step an output of that name"
    )]
    UnknownPath(String),
    #[error(
        "{{{{{0}}}}} is no placeholder; write a path such as {{{{a.b}}}}, or \\{{{{ for the two braces themselves"
    )]
    BadPlaceholder(String),
    #[error("{{{{{0}}}}} {1}")]
    BadValue(String, String),
    #[error("the prompt is {0} bytes with its values; the limit is {PROMPT_BYTES_MAX}")]
    TooLong(usize),
}

/// A part of a template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part<'t> {
    Text(&'t str),
    Path(&'t str),
}

/// Fills a template in.
pub(crate) fn fill(template: &str, sources: Sources<'_>) -> Result<Prompt, BadTemplate> {
    let mut prompt = Prompt { text: String::with_capacity(template.len()), cut: Vec::new() };
    for part in parts(template)? {
        match part {
            Part::Text(text) => prompt.text.push_str(text),
            Part::Path(path) => {
                let value = sources.find(path).ok_or_else(|| BadTemplate::UnknownPath(shown(path)))?;
                let clean = CleanValue::new(&value)
                    .map_err(|bad| BadTemplate::BadValue(shown(path), bad.to_string()))?;
                if clean.cut > 0 {
                    prompt.cut.push(path.to_owned());
                }
                prompt.text.push_str(&clean.block(path));
            }
        }
        if prompt.text.len() > PROMPT_BYTES_MAX {
            return Err(BadTemplate::TooLong(prompt.text.len()));
        }
    }
    // The CLI takes a prompt that begins with a slash for one of its own commands, and asks no model.
    if prompt.text.starts_with('/') {
        prompt.text.insert(0, '\n');
    }
    Ok(prompt)
}

/// Checks a template before anything is paid for. `earlier` are the names of the steps before it, whose outputs are not
/// known yet.
pub(crate) fn check(template: &str, input: &Value, earlier: &[&str]) -> Result<(), BadTemplate> {
    let sources = Sources { input, outputs: &[] };
    for part in parts(template)? {
        let Part::Path(path) = part else { continue };
        let is_known = match head(path) {
            ("previous", _) | ("steps", None) => !earlier.is_empty(),
            ("steps", Some(rest)) => earlier.contains(&head(rest).0),
            _ => sources.find(path).is_some(),
        };
        if !is_known {
            return Err(BadTemplate::UnknownPath(shown(path)));
        }
    }
    Ok(())
}

impl Sources<'_> {
    fn find(&self, path: &str) -> Option<Value> {
        match head(path) {
            ("previous", rest) => descend(&self.outputs.last()?.1, rest),
            ("steps", None) => {
                let all: Map<String, Value> = self.outputs.iter().cloned().collect();
                (!all.is_empty()).then_some(Value::Object(all))
            }
            ("steps", Some(rest)) => {
                let (name, rest) = head(rest);
                let (_, output) = self.outputs.iter().find(|(step, _)| step == name)?;
                descend(output, rest)
            }
            // A value of the input that is called so goes before the input itself.
            ("input", rest) if self.input.get("input").is_none() => descend(self.input, rest),
            _ => descend(self.input, Some(path)),
        }
    }
}

/// The value at the end of a path; names in objects, numbers in lists.
fn descend(value: &Value, path: Option<&str>) -> Option<Value> {
    let Some(path) = path else { return Some(value.clone()) };
    let mut at = value;
    for name in path.split('.') {
        at = match at {
            Value::Object(fields) => fields.get(name)?,
            Value::Array(items) => items.get(name.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    Some(at.clone())
}

/// The first name of a path and what follows it.
fn head(path: &str) -> (&str, Option<&str>) {
    match path.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (path, None),
    }
}

/// Splits a template. `\{{` stands for two braces.
fn parts(template: &str) -> Result<Vec<Part<'_>>, BadTemplate> {
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some(at) = rest.find("{{") {
        if rest[..at].ends_with('\\') {
            parts.push(Part::Text(&rest[..at - 1]));
            parts.push(Part::Text("{{"));
            rest = &rest[at + 2..];
            continue;
        }
        parts.push(Part::Text(&rest[..at]));
        let inner = &rest[at + 2..];
        let end = inner.find("}}").ok_or_else(|| BadTemplate::BadPlaceholder(shown(inner)))?;
        let path = inner[..end].trim();
        if !is_path(path) {
            return Err(BadTemplate::BadPlaceholder(shown(&inner[..end])));
        }
        parts.push(Part::Path(path));
        rest = &inner[end + 2..];
    }
    parts.push(Part::Text(rest));
    Ok(parts)
}

/// Names of letters, digits, `_`, `-`, `$` and `:`, with dots between them.
fn is_path(path: &str) -> bool {
    let fits = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '$' | ':');
    path.split('.').all(|name| !name.is_empty() && name.chars().all(fits))
}

/// A path in an error, not longer than one can read.
fn shown(path: &str) -> String {
    path.chars().take(100).flat_map(char::escape_default).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn filled(template: &str) -> Result<String, String> {
        let input = json!({
            "storeId": "s-1", "n": 3, "nested": { "list": [{ "a": "deep" }], "none": null },
            "loop": "{{storeId}}", "dependencyOutputs": { "task-A": { "title": "Shoes" } }
        });
        let outputs =
            [("find".to_owned(), json!({ "tags": ["x"] })), ("rate".to_owned(), json!({ "score": 5 }))];
        let sources = Sources { input: &input, outputs: &outputs };
        fill(template, sources).map(|prompt| prompt.text).map_err(|bad| bad.to_string())
    }

    fn data(path: &str, text: &str) -> String {
        format!("<data path=\"{path}\">{text}</data>")
    }

    #[test]
    fn placeholders_are_replaced_once() {
        for (template, expected) in [
            ("no placeholder", "no placeholder".to_owned()),
            ("store {{storeId}}!", format!("store {}!", data("storeId", "s-1"))),
            ("{{ input.storeId }}", data("input.storeId", "s-1")),
            ("{{nested.list.0.a}}", data("nested.list.0.a", "deep")),
            ("{{nested}}", data("nested", r#"{"list":[{"a":"deep"}],"none":null}"#)),
            ("{{nested.none}}", data("nested.none", "null")),
            ("{{loop}}", data("loop", "{{storeId}}")),
            ("{{dependencyOutputs.task-A.title}}", data("dependencyOutputs.task-A.title", "Shoes")),
            ("{{steps.find.tags.0}}", data("steps.find.tags.0", "x")),
            ("{{previous}}", data("previous", r#"{"score":5}"#)),
            ("{{previous.score}}", data("previous.score", "5")),
            ("{{steps}}", data("steps", r#"{"find":{"tags":["x"]},"rate":{"score":5}}"#)),
            (r"a \{{storeId}} b", "a {{storeId}} b".to_owned()),
            ("/cost", "\n/cost".to_owned()),
            ("} }} {", "} }} {".to_owned()),
        ] {
            assert_eq!(filled(template), Ok(expected), "{template}");
        }
        assert!(filled("{{input}}").unwrap().contains(r#""n":3"#));
    }

    #[test]
    fn what_cannot_be_replaced_is_an_error_that_names_it() {
        for (template, part) in [
            ("{{nothing}}", "{{nothing}} is not there"),
            ("{{nested.list.7}}", "{{nested.list.7}} is not there"),
            ("{{storeId.x}}", "{{storeId.x}} is not there"),
            ("{{steps.later.x}}", "{{steps.later.x}} is not there"),
            ("{{ }}", "no placeholder"),
            ("{{a b}}", "{{a b}} is no placeholder"),
            ("{{a..b}}", "no placeholder"),
            ("{{open", "{{open}} is no placeholder"),
            ("{{{{storeId}}}}", "no placeholder"),
        ] {
            let error = filled(template).unwrap_err();
            assert!(error.contains(part), "{template}: {error}");
        }
    }

    #[test]
    fn a_template_is_checked_before_the_first_step_runs() {
        let input = json!({ "a": 1 });
        for (template, earlier, fits) in [
            ("{{a}} {{input}}", &[][..], true),
            ("{{b}}", &[], false),
            ("{{previous}}", &[], false),
            ("{{previous.any}}", &["one"], true),
            ("{{steps.one.any}}", &["one"], true),
            ("{{steps.two.any}}", &["one"], false),
            ("{{steps}}", &[], false),
            ("{{x y}}", &[], false),
        ] {
            assert_eq!(check(template, &input, earlier).is_ok(), fits, "{template}");
        }
    }

    #[test]
    fn a_value_of_the_input_called_input_goes_first() {
        let input = json!({ "input": { "x": 1 } });
        let sources = Sources { input: &input, outputs: &[] };
        assert_eq!(fill("{{input.x}}", sources).unwrap().text, data("input.x", "1"));
    }

    #[test]
    fn a_prompt_has_a_limit_and_cut_values_are_named() {
        let input = json!({ "big": vec!["x".repeat(90_000); 50], "long": "y".repeat(100_001) });
        let sources = Sources { input: &input, outputs: &[] };
        assert!(matches!(fill("{{big}}", sources), Err(BadTemplate::TooLong(_))));
        assert_eq!(fill("{{long}}", sources).unwrap().cut, ["long"]);
    }
}
