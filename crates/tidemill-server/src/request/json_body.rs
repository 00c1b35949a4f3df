//! JSON bodies: from bytes to typed requests, with errors that name the place.

mod twice;

use axum::body::Bytes;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::value::RawValue;
use tidemill_model::Json;
use tidemill_model::authored::bounded_value::{BadValue, read_value};
use tidemill_model::authored::nearest::unknown_field;

use self::twice::key_given_twice;

use crate::api::{Detail, Object, at_most};
use crate::problem::Problem;

/// Reads a body as `T`. Types of requests deny unknown fields.
pub(crate) fn read<T: DeserializeOwned>(body: &Bytes) -> Result<T, Problem> {
    let text = text(body)?;
    let Object(request) = serde_json::from_str(text).map_err(|error| explain(text, &error))?;
    all_once(text).map(|()| request)
}

/// Like `read`, but nothing at all is the default.
pub(crate) fn read_or_default<T: DeserializeOwned + Default>(body: &Bytes) -> Result<T, Problem> {
    if body.is_empty() { Ok(T::default()) } else { read(body) }
}

/// The body of a request that has nothing to say: nothing at all or `{}`. What somebody says all the same would be
/// passed over, so it is refused.
pub(crate) fn nothing(body: &Bytes) -> Result<(), Problem> {
    #[derive(Default, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Nothing {}

    read_or_default::<Nothing>(body).map(|Nothing {}| ())
}

/// Reads a body as any JSON value.
pub(crate) fn value(body: &Bytes) -> Result<serde_json::Value, Problem> {
    let text = text(body)?;
    let value = read_value(text).map_err(|bad| match bad {
        BadValue::Syntax(error) => not_json(&error),
        BadValue::TooHeavy => Problem::too_large(format!("the body {bad}")),
    })?;
    all_once(text).map(|()| value)
}

/// The text of a body that is JSON and has no key twice; what it says is for the caller to read.
pub(crate) fn sound(body: &Bytes) -> Result<&str, Problem> {
    let text = text(body)?;
    serde_json::from_str::<IgnoredAny>(text).map_err(|error| not_json(&error))?;
    all_once(text).map(|()| text)
}

/// The values of a body that is a list, or the one that it is, each letter by letter.
pub(crate) struct OneOrMany {
    pub(crate) items: Vec<Json>,
    pub(crate) is_list: bool,
}

/// Reads a body as one JSON value or a list of them. Of a list longer than `most` only one more is read.
pub(crate) fn one_or_many(body: &Bytes, most: usize) -> Result<OneOrMany, Problem> {
    let text = sound(body)?;
    if !text.trim_start().starts_with('[') {
        let one = serde_json::from_str(text).map_err(|error| not_json(&error))?;
        return Ok(OneOrMany { items: vec![one], is_list: false });
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let items = at_most(&mut deserializer, most).map_err(|error| not_json(&error))?;
    Ok(OneOrMany { items, is_list: true })
}

/// Refuses a key that is given twice, at any depth: which of the two counts would depend on the reader.
fn all_once(text: &str) -> Result<(), Problem> {
    match key_given_twice(text) {
        Some(place) => Err(Problem::invalid_field(place, "is given twice")),
        None => Ok(()),
    }
}

/// How deep objects and lists may lie in each other. Values that pass through unread are held to it too, because
/// somebody will read them.
const DEPTH_MAX: usize = 128;

fn text(body: &Bytes) -> Result<&str, Problem> {
    if let Some(at) = too_deep(body) {
        let message = format!("is nested deeper than {DEPTH_MAX} levels at byte {at}");
        return Err(Problem::field("INVALID_JSON", "body", message));
    }
    std::str::from_utf8(body).map_err(|error| {
        let at = error.valid_up_to();
        Problem::field("INVALID_JSON", "body", format!("is not UTF-8 from byte {at} on"))
    })
}

/// Where a text first exceeds the depth.
fn too_deep(text: &[u8]) -> Option<usize> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Some(at);
                }
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    None
}

fn not_json(error: &serde_json::Error) -> Problem {
    let message = without_position(&error.to_string());
    let (line, column) = (error.line(), error.column());
    Problem::field("INVALID_JSON", "body", format!("is not JSON at line {line} column {column}: {message}"))
}

/// What is wrong with a text that is not a `T`: no JSON, no object, or a field of it.
fn explain(text: &str, error: &serde_json::Error) -> Problem {
    // Typed reading stops at the first wrong field; whether the rest is JSON is asked first.
    if let Err(syntax) = serde_json::from_str::<IgnoredAny>(text) {
        return not_json(&syntax);
    }
    if let Err(problem) = all_once(text) {
        return problem;
    }
    let fields = match serde_json::from_str::<Fields<'_>>(text) {
        Ok(fields) => fields.0,
        Err(_) => return Problem::invalid_field("body", "must be a JSON object"),
    };
    let message = without_position(&error.to_string());
    let quoted = message.split('`').nth(1).unwrap_or_default().to_owned();
    let place = offset(text, error.line(), error.column());
    // A value of the wrong kind is noticed before its first byte is taken.
    let start_of = |value: &str| value.as_ptr() as usize - text.as_ptr() as usize;
    let holder =
        fields.iter().rfind(|(_, value)| start_of(value) <= place + 1).map(|(name, value)| match element_at(
            value,
            (place + 1).saturating_sub(start_of(value)),
        ) {
            Some(index) => format!("{name}[{index}]"),
            None => name.clone(),
        });
    let holder = holder.as_deref();
    // Errors inside a field name that field; errors of the object itself name the field they speak of.
    let nested = |name: &str| match holder {
        Some(holder) if holder != name && !fields.iter().any(|(own, _)| own == name) => {
            format!("{holder}.{name}")
        }
        _ => name.to_owned(),
    };
    if message.starts_with("unknown field") {
        // The message lists what is known in the same quotes.
        let told = unknown_field(&quoted, message.split('`').skip(3).step_by(2));
        return Problem::all(vec![Detail::new(nested(&quoted), "UNKNOWN_FIELD", told)], 1);
    }
    if message.starts_with("missing field") {
        let inside = holder.filter(|_| place + 1 < text.trim_end().len());
        let name = inside.map_or(quoted.clone(), |holder| format!("{holder}.{quoted}"));
        return Problem::field("MISSING_FIELD", name, "is missing");
    }
    let inner = holder.and_then(|holder| {
        let value = fields.iter().find(|(name, _)| name == holder)?.1;
        Some(format!("{holder}.{}", field_at(value, (place + 1).checked_sub(start_of(value))?)?))
    });
    Problem::invalid_field(inner.as_deref().or(holder).unwrap_or("body"), message)
}

/// The field of an object that a byte lies in, and the one in that. `None` for the end of the object: it is where
/// errors of types lie that are told apart by a field, whichever field was wrong.
fn field_at(object: &str, place: usize) -> Option<String> {
    if !object.starts_with('{') || place >= object.len() {
        return None;
    }
    let fields = serde_json::from_str::<Fields<'_>>(object).ok()?.0;
    let start_of = |value: &str| value.as_ptr() as usize - object.as_ptr() as usize;
    let (name, value) = fields.iter().rfind(|(_, value)| start_of(value) <= place)?;
    let place = place - start_of(value);
    Some(match (element_at(value, place), field_at(value, place)) {
        (Some(index), _) => format!("{name}[{index}]"),
        (None, Some(inner)) => format!("{name}.{inner}"),
        (None, None) => name.clone(),
    })
}

/// Which element of a list a byte lies in; `None` when the text is no list.
fn element_at(value: &str, place: usize) -> Option<usize> {
    // What is wrong at its first byte is wrong with the list itself.
    if place < 2 || !value.starts_with('[') {
        return None;
    }
    let (mut depth, mut in_string, mut escaped, mut index) = (0usize, false, false, 0);
    for byte in value.bytes().take(place) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => depth += 1,
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            b',' if !in_string && depth == 1 => index += 1,
            _ => {}
        }
    }
    Some(index)
}

/// `serde_json` ends its messages with the place.
fn without_position(message: &str) -> String {
    message.split(" at line ").next().unwrap_or_default().to_owned()
}

/// The byte at a line and column, both counted from 1.
fn offset(text: &str, line: usize, column: usize) -> usize {
    let start: usize = text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    (start + column.saturating_sub(1)).min(text.len())
}

/// The top level of an object in the order of its text.
struct Fields<'a>(Vec<(String, &'a str)>);

impl<'de> serde::Deserialize<'de> for Fields<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;

        impl<'de> serde::de::Visitor<'de> for Collect {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some((name, value)) = map.next_entry::<String, &RawValue>()? {
                    fields.push((name, value.get()));
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(Collect)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{BulkRequest, ClaimRequest, FinishRequest, PublishRequest};

    fn verdict<T: DeserializeOwned>(text: &str) -> String {
        match read::<T>(&Bytes::from(text.to_owned())) {
            Ok(_) => "ok".to_owned(),
            Err(problem) => format!("{} {}", problem.code, problem.details[0].field),
        }
    }

    #[test]
    fn errors_name_the_field() {
        for (text, expected) in [
            (r#"{"workerId":"w","slots":2}"#, "ok"),
            (r#"{"workerId":"w","slots":"2"}"#, "INVALID_FIELD slots"),
            (r#"{"slots":-1,"workerId":"w"}"#, "INVALID_FIELD slots"),
            (r#"{"slots":1e99,"workerId":"w"}"#, "INVALID_FIELD slots"),
            (r#"{"slots":99999999999999999999999,"workerId":"w"}"#, "INVALID_FIELD slots"),
            ("{\n \"slots\": 1,\n \"workerId\": null\n}", "INVALID_FIELD workerId"),
            (r#"{"slots":2}"#, "MISSING_FIELD workerId"),
            ("{}", "MISSING_FIELD workerId"),
            (r#"{"workerId":"w","slot":2}"#, "UNKNOWN_FIELD slot"),
            ("[]", "INVALID_FIELD body"),
            (r#"["w"]"#, "INVALID_FIELD body"),
            ("null", "INVALID_FIELD body"),
            ("\"\"", "INVALID_FIELD body"),
            ("", "INVALID_JSON body"),
            ("{", "INVALID_JSON body"),
            (r#"{"workerId":"w"} x"#, "INVALID_JSON body"),
            (r#"{"workerId":3, x}"#, "INVALID_JSON body"),
        ] {
            assert_eq!(verdict::<ClaimRequest>(text), expected, "{text}");
        }
    }

    #[test]
    fn an_unknown_field_is_told_what_may_have_been_meant() {
        for (text, expected) in [
            (r#"{"workerId":"w","slot":2}"#, "slot: unknown field; did you mean slots?"),
            (r#"{"worker_id":"w"}"#, "worker_id: unknown field; did you mean workerId?"),
            (
                r#"{"workerId":"w","colour":2}"#,
                "colour: unknown field; known are workerId, claimId, slots, waitMs",
            ),
        ] {
            let problem = read::<ClaimRequest>(&Bytes::from(text)).unwrap_err();
            assert_eq!((problem.status.as_u16(), &*problem.code), (400, "UNKNOWN_FIELD"));
            assert_eq!(problem.detail, expected);
        }
        // A request that has nothing to say knows no field at all.
        let problem = nothing(&Bytes::from(r#"{"x":1}"#)).unwrap_err();
        assert_eq!(problem.detail, "x: unknown field; known are none");
    }

    #[test]
    fn a_key_given_twice_is_named_wherever_it_is() {
        for (text, expected) in [
            (r#"{"workerId":"w","workerId":"w"}"#, "INVALID_FIELD workerId"),
            (r#"{"workerId":"w","slots":1,"\u0073lots":2}"#, "INVALID_FIELD slots"),
            // What is wrong besides comes second.
            (r#"{"workerId":"w","slots":1,"slots":"x","other":1}"#, "INVALID_FIELD slots"),
        ] {
            assert_eq!(verdict::<ClaimRequest>(text), expected, "{text}");
        }
        for (output, expected) in [
            (r#"{"a":1,"b":{"a":1}}"#, "ok"),
            (r#"[{"a":1},{"a":1}]"#, "ok"),
            (r#"{"a":1,"b":{"c":[1,{"d":1,"e":2,"d":3}]}}"#, "INVALID_FIELD outcome.output.b.c[1].d"),
            (r#"{"":1,"":2}"#, "INVALID_FIELD outcome.output."),
        ] {
            let outcome = format!(r#"{{"status":"completed","output":{output}}}"#);
            let text = format!(r#"{{"requestId":"r","outcome":{outcome},"fence":1}}"#);
            assert_eq!(verdict::<FinishRequest>(&text), expected, "{text}");
            let read = value(&Bytes::from(text.clone()));
            assert_eq!(read.is_ok(), expected == "ok", "{text}");
        }
        // Many keys are told apart as well as few.
        let keys =
            |count: usize| (0..count).map(|key| format!(r#""k{key}":1"#)).collect::<Vec<_>>().join(",");
        let object = |more: &str| Bytes::from(format!("{{{}{more}}}", keys(5_000)));
        assert!(value(&object("")).is_ok());
        let problem = value(&object(r#","k17":2"#)).unwrap_err();
        assert_eq!((problem.status.as_u16(), problem.details[0].field.as_str()), (400, "k17"));
    }

    #[test]
    fn errors_name_fields_within_fields() {
        for (outcome, expected) in [
            (r#"{"status":"completed"}"#, "ok"),
            (r#"{"status":"done"}"#, "INVALID_FIELD outcome.status"),
            (r#"{"status":"completed","outpt":1}"#, "UNKNOWN_FIELD outcome.outpt"),
            ("{}", "MISSING_FIELD outcome.status"),
            (r#"["completed"]"#, "INVALID_FIELD outcome"),
            (r#"{"status":"completed","usage":[1,2,3]}"#, "INVALID_FIELD outcome.usage"),
            (r#"{"status":"completed","usage":[1,2,3],"output":1}"#, "INVALID_FIELD outcome.usage"),
        ] {
            let text = format!(r#"{{"requestId":"r","outcome":{outcome},"fence":1}}"#);
            assert_eq!(verdict::<FinishRequest>(&text), expected, "{text}");
        }
    }

    #[test]
    fn errors_name_the_field_of_the_wrong_kind_within_a_field() {
        for (filter, expected) in [
            (r#"{"all":true}"#, "ok"),
            (r#"{"all":"yes"}"#, "INVALID_FIELD filter.all"),
            (r#"{"all" : 1 , "code":"20Cook"}"#, "INVALID_FIELD filter.all"),
            (r#"{"code":"20Cook","executionIds":{}}"#, "INVALID_FIELD filter.executionIds"),
            (r#"{"executionIds":["a",7],"code":"20Cook"}"#, "INVALID_FIELD filter.executionIds[1]"),
            (r#"{"executionIds":["a"],"code":7}"#, "INVALID_FIELD filter.code"),
            (r#"{"code":"20Cook","al":true}"#, "UNKNOWN_FIELD filter.al"),
            ("7", "INVALID_FIELD filter"),
            ("[]", "INVALID_FIELD filter"),
        ] {
            let text = format!(r#"{{"action":"resume","filter":{filter}}}"#);
            assert_eq!(verdict::<BulkRequest>(&text), expected, "{text}");
        }
    }

    #[test]
    fn errors_name_the_element_of_a_list() {
        for (events, expected) in [
            (r#"{"eventType":"a.b"}"#, "ok"),
            (r#"{"eventType":"a.b"},{}"#, "MISSING_FIELD events[1].eventType"),
            (
                r#"{"eventType":"a,b"},{"eventType":"a.b","timestamp":-1},{"foo":1}"#,
                "INVALID_FIELD events[1]",
            ),
            (r#"{"eventType":"a.b","properties":{"x":[1,2]}},{"foo":1}"#, "UNKNOWN_FIELD events[1].foo"),
            ("7", "INVALID_FIELD events[0]"),
        ] {
            let text = format!(r#"{{"events":[{events}]}}"#);
            assert_eq!(verdict::<PublishRequest>(&text), expected, "{text}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        for (input, expected) in [
            (nested(100), "ok"),
            (nested(100_000), "INVALID_JSON body"),
            (format!(r#"["{}"]"#, "[".repeat(1_000)), "ok"),
            (format!(r#"["\"{}"]"#, "[".repeat(1_000)), "ok"),
        ] {
            let text = format!(
                r#"{{"requestId":"r","outcome":{{"status":"completed","output":{input}}},"fence":1}}"#
            );
            assert_eq!(verdict::<FinishRequest>(&text), expected, "{}", &input[..20]);
        }
    }
}
