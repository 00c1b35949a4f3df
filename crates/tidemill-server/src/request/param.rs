//! Parameters: what a path, a query or a header may hold. They are checked before a handler sees them.

use std::collections::HashMap;

use serde_json::{Value, json};
use tidemill_model::authored::nearest::nearest;

use crate::problem::Problem;

/// One parameter of a route.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Param {
    pub(crate) name: &'static str,
    pub(crate) place: Place,
    pub(crate) kind: Kind,
    pub(crate) about: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Path,
    Query,
    Header,
}

/// What a parameter may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Letters, digits, `_` and `-`.
    Word {
        most: usize,
    },
    /// Any text without control characters and `#`.
    Text {
        most: usize,
    },
    /// `job-` and 32 digits.
    JobId,
    /// A path below a folder.
    File,
    /// A type and an id with a slash between them.
    Entity,
    Integer {
        least: u64,
        most: u64,
    },
    /// Epoch milliseconds.
    Moment,
    /// A day by UTC.
    Day,
    Choice(&'static [&'static str]),
    Flag,
    /// A definition's version between quotes, or bare.
    Version,
}

/// The longest file name that is taken, in bytes.
pub(crate) const FILE_BYTES_MAX: usize = 512;

impl Kind {
    /// What is wrong with `text`, if anything is.
    pub(crate) fn problem(self, text: &str) -> Option<String> {
        let within = |least: usize, most: usize| (least..=most).contains(&text.len());
        let fits = match self {
            Self::Word { most } => {
                within(1, most) && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-')
            }
            Self::Text { most } => within(1, most) && text.chars().all(|c| !c.is_control() && c != '#'),
            Self::JobId => tidemill_model::JobId::new(text).is_ok(),
            Self::File => is_file(text),
            Self::Entity => text.split_once('/').is_some_and(|(kind, id)| {
                tidemill_model::EntityType::new(kind).is_ok() && tidemill_model::EntityId::new(id).is_ok()
            }),
            Self::Integer { least, most } => {
                digits(text).is_some_and(|value| (least..=most).contains(&value))
            }
            Self::Moment => {
                digits(text).is_some_and(|value| tidemill_model::Timestamp::new("moment", value).is_ok())
            }
            Self::Day => tidemill_model::Day::parse(text).is_some(),
            Self::Choice(choices) => choices.contains(&text),
            Self::Flag => matches!(text, "true" | "false"),
            Self::Version => digits(text.trim_matches('"')).is_some(),
        };
        (!fits).then(|| format!("must be {}", self.words()))
    }

    fn words(self) -> String {
        match self {
            Self::Word { most } => format!("1 to {most} letters, digits, `_` and `-`"),
            Self::Text { most } => format!("1 to {most} bytes without control characters and `#`"),
            Self::JobId => "`job-` and 32 lower-case hexadecimal digits".to_owned(),
            Self::File => format!("a relative path of at most {FILE_BYTES_MAX} bytes without `.` and `..`"),
            Self::Entity => "an entity type, a slash and an entity id, such as `STORE/store-1`".to_owned(),
            Self::Integer { least, most } => format!("a number from {least} to {most}"),
            Self::Moment => "a time in epoch milliseconds (13 digits)".to_owned(),
            Self::Day => "a day, such as 2026-11-15".to_owned(),
            Self::Choice(choices) => format!("one of {}", choices.join(", ")),
            Self::Flag => "true or false".to_owned(),
            Self::Version => "a version number".to_owned(),
        }
    }

    pub(crate) fn schema(self) -> Value {
        match self {
            Self::Word { most } => {
                json!({"type": "string", "pattern": format!("^[A-Za-z0-9_-]{{1,{most}}}$")})
            }
            Self::Text { most } => json!({
                "type": "string",
                "minLength": 1,
                "maxLength": most,
                "pattern": r"^[^#\u0000-\u001f\u007f-\u009f]+$",
            }),
            Self::JobId => json!({"type": "string", "pattern": "^job-[0-9a-f]{32}$"}),
            Self::File => json!({"type": "string", "minLength": 1, "maxLength": FILE_BYTES_MAX}),
            Self::Entity => json!({"type": "string", "pattern": "^[A-Z][A-Z_]{0,31}/[^#]{1,512}$"}),
            Self::Integer { least, most } => json!({"type": "integer", "minimum": least, "maximum": most}),
            Self::Moment => {
                json!({"type": "integer", "minimum": 1_000_000_000_000_u64, "maximum": 9_999_999_999_999_u64})
            }
            Self::Day => json!({"type": "string", "format": "date"}),
            Self::Choice(choices) => json!({"type": "string", "enum": choices}),
            Self::Flag => json!({"type": "boolean"}),
            Self::Version => json!({"type": "string", "pattern": "^(\"[0-9]{1,18}\"|[0-9]{1,18})$"}),
        }
    }
}

fn digits(text: &str) -> Option<u64> {
    let plain = (1..=20).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

/// Whether a path names something below a folder and nothing else. What a task calls its files is its own affair: all
/// that Linux takes for a name is one.
pub(crate) fn is_file(path: &str) -> bool {
    (1..=FILE_BYTES_MAX).contains(&path.len())
        && !path.contains('\0')
        && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

/// The parameters of one request, checked.
#[derive(Debug, Default)]
pub(crate) struct Inputs(HashMap<&'static str, String>);

impl Inputs {
    /// Takes what a request gives for the parameters of its route.
    pub(crate) fn read(
        params: &[Param],
        path: &[(String, String)],
        query: Option<&str>,
        header: impl Fn(&str) -> Option<Result<String, ()>>,
    ) -> Result<Self, Problem> {
        let mut inputs = HashMap::new();
        for param in params.iter().filter(|param| param.place == Place::Path) {
            let given = path.iter().find(|(name, _)| name == param.name).map_or("", |(_, text)| text);
            // A text that cannot be an id names nothing.
            if param.kind.problem(given).is_some() {
                return Err(Problem::not_found(param.name, given));
            }
            inputs.insert(param.name, given.to_owned());
        }
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, text) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(name), Some(text)) = (decode(name), decode(text)) else {
                return Err(Problem::invalid_parameter("query", "is not valid percent-encoded UTF-8"));
            };
            let known = params.iter().find(|param| param.place == Place::Query && param.name == name);
            let Some(param) = known else {
                let shown: String = name.chars().take(80).collect();
                return Err(Problem::field("UNKNOWN_PARAMETER", shown, unknown(&name, params)));
            };
            if let Some(problem) = param.kind.problem(&text) {
                return Err(Problem::invalid_parameter(param.name, problem));
            }
            if inputs.insert(param.name, text).is_some() {
                return Err(Problem::invalid_parameter(param.name, "is given more than once"));
            }
        }
        for param in params.iter().filter(|param| param.place == Place::Header) {
            let Some(given) = header(param.name) else { continue };
            let text = given.map_err(|()| {
                Problem::invalid_parameter(param.name, "must be given once, in printable ASCII characters")
            })?;
            if let Some(problem) = param.kind.problem(&text) {
                return Err(Problem::invalid_parameter(param.name, problem));
            }
            inputs.insert(param.name, text);
        }
        Ok(Self(inputs))
    }

    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// A part of the path.
    pub(crate) fn part(&self, name: &str) -> &str {
        self.text(name).unwrap_or_default()
    }

    pub(crate) fn number(&self, name: &str) -> Option<u64> {
        self.text(name).and_then(|text| text.trim_matches('"').parse().ok())
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.text(name) == Some("true")
    }
}

/// What to say of a parameter that a route does not have: the one that may have been meant, or all.
fn unknown(name: &str, params: &[Param]) -> String {
    let known: Vec<_> =
        params.iter().filter(|param| param.place == Place::Query).map(|param| param.name).collect();
    let hint = match nearest(name, known.iter().copied()) {
        Some(meant) => format!("did you mean {meant}?"),
        None if known.is_empty() => "it has none".to_owned(),
        None => format!("known are {}", known.join(", ")),
    };
    format!("is not a parameter of this route; {hint}")
}

/// The text behind percent signs and plus signs. A percent sign without two digits behind it is refused.
pub(crate) fn decode(text: &str) -> Option<String> {
    tidemill_api::decode(&text.replace('+', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARAMS: [Param; 4] = [
        Param { name: "jobId", place: Place::Path, kind: Kind::JobId, about: "" },
        Param { name: "limit", place: Place::Query, kind: Kind::Integer { least: 1, most: 200 }, about: "" },
        Param { name: "type", place: Place::Query, kind: Kind::Text { most: 16 }, about: "" },
        Param { name: "If-Match", place: Place::Header, kind: Kind::Version, about: "" },
    ];

    fn read(job: &str, query: &str, header: Option<&str>) -> Result<Inputs, String> {
        let path = [("jobId".to_owned(), job.to_owned())];
        let header = |_: &str| header.map(|text| Ok(text.to_owned()));
        Inputs::read(&PARAMS, &path, Some(query), header)
            .map_err(|problem| format!("{} {}", problem.status.as_u16(), problem.code))
    }

    #[test]
    fn what_fits_is_given_on() {
        let job = "job-0123456789abcdef0123456789abcdef";
        let inputs = read(job, "limit=200&type=user+cr%C3%A9&", Some("\"7\"")).unwrap();
        assert_eq!(inputs.part("jobId"), job);
        assert_eq!(inputs.number("limit"), Some(200));
        assert_eq!(inputs.text("type"), Some("user cré"));
        assert_eq!(inputs.number("If-Match"), Some(7));
        assert_eq!(inputs.text("cursor"), None);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let job = "job-0123456789abcdef0123456789abcdef";
        for (job, query, header, expected) in [
            ("job-1", "", None, "404 NOT_FOUND"),
            ("\0", "", None, "404 NOT_FOUND"),
            (job, "limit=0", None, "400 INVALID_PARAMETER"),
            (job, "limit=201", None, "400 INVALID_PARAMETER"),
            (job, "limit=", None, "400 INVALID_PARAMETER"),
            (job, "limit", None, "400 INVALID_PARAMETER"),
            (job, "limit=+5", None, "400 INVALID_PARAMETER"),
            (job, "limit=99999999999999999999999", None, "400 INVALID_PARAMETER"),
            (job, "limit=5&limit=5", None, "400 INVALID_PARAMETER"),
            (job, "type=%00", None, "400 INVALID_PARAMETER"),
            (job, "type=%ff", None, "400 INVALID_PARAMETER"),
            (job, "type=%2", None, "400 INVALID_PARAMETER"),
            (job, "type=seventeen%20bytes..", None, "400 INVALID_PARAMETER"),
            (job, "typ=x", None, "400 UNKNOWN_PARAMETER"),
            (job, "", Some("seven"), "400 INVALID_PARAMETER"),
        ] {
            assert_eq!(read(job, query, header).unwrap_err(), expected, "{job:?} {query:?} {header:?}");
        }
    }

    #[test]
    fn an_unknown_parameter_is_told_with_what_may_have_been_meant() {
        for (params, given, expected) in [
            (&PARAMS[..], "tpye", "is not a parameter of this route; did you mean type?"),
            (&PARAMS[..], "status", "is not a parameter of this route; known are limit, type"),
            (&PARAMS[..1], "status", "is not a parameter of this route; it has none"),
        ] {
            assert_eq!(unknown(given, params), expected);
        }
    }

    #[test]
    fn files_stay_below_their_folder() {
        for (path, fits) in [
            ("logs/output.log", true),
            ("artifacts/a b.txt", true),
            ("..", false),
            ("a/../b", false),
            ("/etc/passwd", false),
            ("a//b", false),
            ("a/", false),
            ("./a", false),
            ("a\\b#c", true),
            ("artifacts/a\nb\u{1b}[2J\u{202e}", true),
            ("a\0b", false),
        ] {
            assert_eq!(is_file(path), fits, "{path:?}");
        }
    }
}
