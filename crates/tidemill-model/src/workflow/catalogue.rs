//! The catalogue: what the codes mean.
//!
//! It is data. Ours is `catalogue.json`; users add files of the same form. A code is looked up by the longest form that
//! is known: a whole code before a code or a range with a suffix, before a prefix with a suffix, before the type alone.
//! A code between two ranges has a type and a phase, but no category.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::error_code::{ErrorCode, ErrorType};
use crate::authored::document::{Document, kind};
use crate::authored::field_problem::{FieldProblems, code};

/// How many types and codes one file may have.
pub const ENTRIES_MAX: usize = 10_000;
const DESCRIPTION_BYTES_MAX: usize = 1_000;
const WORD_BYTES_MAX: usize = 128;
/// The shortest part of a hash that is taken for one.
const HASH_DIGITS_MIN: usize = 8;
const HASH_DIGITS_MAX: usize = 64;

/// All codes that are known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Catalogue {
    types: Arc<BTreeMap<ErrorType, TypeEntry>>,
    /// Later ones come first between forms of one length.
    codes: Arc<Vec<CatalogueEntry>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct TypeEntry {
    phase: Option<String>,
    description: String,
}

/// One form of codes and what it means.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CatalogueEntry {
    /// The form as people write it: `60100-60199<any>`.
    pub form: String,
    #[serde(rename = "type")]
    pub error_type: ErrorType,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<String>,
    pub description: String,
    #[serde(skip)]
    fixed: Fixed,
    #[serde(skip)]
    suffix: Suffix,
}

/// The part of a code that does not vary.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Fixed {
    Code(String),
    /// Digits of one length, compared as numbers; both ends belong to it.
    Range(String, String),
    Prefix(String),
}

/// What may follow the fixed part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Suffix {
    None,
    /// A name that does not begin with a digit. A whole code may also stand without one.
    County,
    /// 8 to 64 hexadecimal digits.
    Hash,
    /// Anything.
    Any,
}

/// What is known of a code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Known {
    pub code: ErrorCode,
    #[serde(rename = "type")]
    pub error_type: ErrorType,
    pub phase: Option<String>,
    /// Null for a code that only its type is known of.
    pub category: Option<String>,
    pub description: Option<String>,
    /// The longest known form that fits, such as `60100-60199<any>`.
    pub form: Option<String>,
    /// The county in the code, if its form has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub county: Option<String>,
}

static BUILT_IN: LazyLock<Catalogue> = LazyLock::new(|| {
    let value = serde_json::from_str(include_str!("catalogue.json")).expect("our own file is JSON");
    let empty = Catalogue { types: Arc::default(), codes: Arc::default() };
    empty.with(value).expect("our own file has no mistakes")
});

impl Catalogue {
    /// The codes that come with the program.
    pub fn built_in() -> Self {
        BUILT_IN.clone()
    }

    /// This catalogue and a user's file before it. The file may describe a form anew that we describe.
    pub fn with(&self, file: Value) -> Result<Self, FieldProblems> {
        let mut problems = FieldProblems::default();
        let Some(mut document) = Document::open("", file, &mut problems) else { return Err(problems) };
        let types = document.list("types").unwrap_or_default();
        let codes = document.list("codes").unwrap_or_default();
        for (field, count) in [("types", types.len()), ("codes", codes.len())] {
            if count > ENTRIES_MAX {
                document.problem(
                    field,
                    code::TOO_LONG,
                    format!("has {count} entries; the limit is {ENTRIES_MAX}"),
                );
            }
        }
        document.close("types and codes");
        if problems.total > 0 {
            return Err(problems);
        }
        let mut all_types = (*self.types).clone();
        let mut seen = Vec::new();
        for (at, value) in types.into_iter().enumerate() {
            if let Some((error_type, entry)) = read_type(&format!("types[{at}]"), value, &mut problems) {
                if seen.contains(&error_type) {
                    problems.add(format!("types[{at}].type"), code::INVALID_VALUE, "stands twice");
                }
                seen.push(error_type);
                all_types.insert(error_type, entry);
            }
        }
        let mut own: Vec<CatalogueEntry> = Vec::with_capacity(codes.len());
        for (at, value) in codes.into_iter().enumerate() {
            let place = format!("codes[{at}]");
            let Some(entry) = read_entry(&place, value, &all_types, &mut problems) else { continue };
            if let Some(other) = own.iter().find(|other| other.clashes_with(&entry)) {
                let message = format!("has codes of {}: a code means one thing", other.form);
                problems.add(place, code::INVALID_VALUE, message);
            }
            own.push(entry);
        }
        own.extend(self.codes.iter().cloned());
        problems.or(Self { types: Arc::new(all_types), codes: Arc::new(own) })
    }

    /// What is known of a code.
    pub fn lookup(&self, error_code: &ErrorCode) -> Known {
        let error_type = error_code.error_type();
        let text = error_code.as_str();
        let fits = |entry: &&CatalogueEntry| entry.suffix_of(text).is_some();
        // The first of the longest: `max_by_key` would give the last.
        let found = self.codes.iter().filter(fits).rev().max_by_key(|entry| entry.rank());
        let of_type = self.types.get(&error_type);
        let county = found.and_then(|entry| match entry.suffix {
            Suffix::County => entry.suffix_of(text).filter(|county| !county.is_empty()),
            _ => None,
        });
        Known {
            code: error_code.clone(),
            error_type,
            phase: found.and_then(|entry| entry.phase.clone()).or_else(|| of_type?.phase.clone()),
            category: found.and_then(|entry| entry.category.clone()),
            description: found
                .map(|entry| entry.description.clone())
                .or_else(|| of_type.map(|of_type| of_type.description.clone())),
            form: found.map(|entry| entry.form.clone()),
            county: county.map(str::to_owned),
        }
    }

    /// All forms, a user's before ours.
    pub fn entries(&self) -> &[CatalogueEntry] {
        &self.codes
    }

    /// What a type of errors is, and its phase.
    pub fn describe_type(&self, error_type: ErrorType) -> Option<(Option<&str>, &str)> {
        self.types.get(&error_type).map(|entry| (entry.phase.as_deref(), entry.description.as_str()))
    }
}

impl Default for Catalogue {
    fn default() -> Self {
        Self::built_in()
    }
}

impl CatalogueEntry {
    /// What follows the fixed part of a code that has this form.
    fn suffix_of<'c>(&self, text: &'c str) -> Option<&'c str> {
        let rest = match &self.fixed {
            Fixed::Code(fixed) | Fixed::Prefix(fixed) => text.strip_prefix(fixed.as_str())?,
            Fixed::Range(from, to) => {
                let (number, rest) = text.split_at_checked(from.len())?;
                let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
                // Texts of digits of one length are ordered as their numbers are.
                (is_number && (from.as_str()..=to.as_str()).contains(&number)).then_some(rest)?
            }
        };
        let may_be_bare = !matches!(self.fixed, Fixed::Prefix(_));
        let fits = match self.suffix {
            _ if rest.is_empty() => may_be_bare,
            Suffix::None => false,
            Suffix::County => !rest.starts_with(|c: char| c.is_ascii_digit()),
            Suffix::Hash => {
                (HASH_DIGITS_MIN..=HASH_DIGITS_MAX).contains(&rest.len())
                    && rest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
            }
            Suffix::Any => true,
        };
        fits.then_some(rest)
    }

    /// The longer the fixed part the better, and a whole code before a range before a prefix of the same length.
    fn rank(&self) -> (usize, u8) {
        match &self.fixed {
            Fixed::Code(fixed) => (fixed.len(), 2),
            Fixed::Range(from, _) => (from.len(), 1),
            Fixed::Prefix(fixed) => (fixed.len(), 0),
        }
    }

    /// Whether both describe the same codes with the same right, so that neither is the longer form.
    fn clashes_with(&self, other: &Self) -> bool {
        match (&self.fixed, &other.fixed) {
            (Fixed::Code(mine), Fixed::Code(theirs)) => mine == theirs,
            (Fixed::Prefix(mine), Fixed::Prefix(theirs)) => mine == theirs && self.suffix == other.suffix,
            (Fixed::Range(from, to), Fixed::Range(start, end)) => {
                from.len() == start.len() && from <= end && start <= to
            }
            _ => false,
        }
    }
}

fn read_type(place: &str, value: Value, problems: &mut FieldProblems) -> Option<(ErrorType, TypeEntry)> {
    let mut document = Document::open(place, value, problems)?;
    if !document.has("type") {
        document.missing("type");
    }
    let error_type = document.text("type").and_then(|text| {
        let found = ErrorType::parse(&text);
        if found.is_none() {
            document.problem("type", code::INVALID_VALUE, "must be two digits");
        }
        found
    });
    let phase = document.short_text("phase", WORD_BYTES_MAX);
    let description = read_description(&mut document);
    document.close("type, phase and description");
    Some((error_type?, TypeEntry { phase, description: description? }))
}

fn read_entry(
    place: &str,
    value: Value,
    types: &BTreeMap<ErrorType, TypeEntry>,
    problems: &mut FieldProblems,
) -> Option<CatalogueEntry> {
    let mut document = Document::open(place, value, problems)?;
    let fixed = read_fixed(&mut document);
    let suffix = read_suffix(&mut document);
    let phase = document.short_text("phase", WORD_BYTES_MAX);
    let category = document.short_text("category", WORD_BYTES_MAX);
    let description = read_description(&mut document);
    let (fixed, suffix) = (fixed?, suffix?);
    if matches!((&fixed, suffix), (Fixed::Prefix(_), Suffix::None)) {
        document.problem(
            "suffix",
            code::INVALID_VALUE,
            "must be county, hash or any, because a prefix is no whole code",
        );
        return None;
    }
    document.close("code, from, to, prefix, suffix, phase, category and description");
    let (shown, start) = match &fixed {
        Fixed::Code(fixed) | Fixed::Prefix(fixed) => (fixed.clone(), fixed),
        Fixed::Range(from, to) => (format!("{from}-{to}"), from),
    };
    let error_type = ErrorType::parse(start.get(..2)?)?;
    let tail = match suffix {
        Suffix::None => "",
        Suffix::County => "<county>",
        Suffix::Hash => "<hash>",
        Suffix::Any => "<any>",
    };
    Some(CatalogueEntry {
        form: format!("{shown}{tail}"),
        error_type,
        phase: phase.or_else(|| types.get(&error_type)?.phase.clone()),
        category,
        description: description?,
        fixed,
        suffix,
    })
}

fn read_description(document: &mut Document<'_>) -> Option<String> {
    if !document.has("description") {
        document.missing("description");
    }
    document.short_text("description", DESCRIPTION_BYTES_MAX)
}

/// Exactly one of a code, a range and a prefix.
fn read_fixed(document: &mut Document<'_>) -> Option<Fixed> {
    let range = document.has("from") || document.has("to");
    let given = [document.has("code"), range, document.has("prefix")];
    if given.iter().filter(|given| **given).count() != 1 {
        for field in ["code", "from", "to", "prefix"] {
            document.take(field);
        }
        let place = document.path("").trim_end_matches('.').to_owned();
        document.problems.add(place, code::ONE_OF, "must have code, or from and to, or prefix");
        return None;
    }
    if document.has("code") {
        let text = document.text("code")?;
        return match ErrorCode::new(&text) {
            Ok(_) => Some(Fixed::Code(text)),
            Err(bad) => {
                document.problem("code", code::INVALID_VALUE, bad.problem.to_string());
                None
            }
        };
    }
    if document.has("prefix") {
        let text = document.short_text("prefix", WORD_BYTES_MAX)?;
        let fits = text.get(..2).and_then(ErrorType::parse).is_some();
        if !fits {
            document.problem("prefix", code::INVALID_VALUE, "must begin with two digits");
        }
        return fits.then_some(Fixed::Prefix(text));
    }
    let mut end = |field: &str| {
        if !document.has(field) {
            document.missing(field);
        }
        let text = document.short_text(field, WORD_BYTES_MAX)?;
        let fits = text.len() > 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        if !fits {
            document.problem(field, code::INVALID_VALUE, "must be three digits or more");
        }
        fits.then_some(text)
    };
    let (from, to) = (end("from"), end("to"));
    let (from, to) = (from?, to?);
    if from.len() != to.len() || from > to || from[..2] != to[..2] {
        let message = format!("must have as many digits as from, the same type, and be no less than {from}");
        document.problem("to", code::INVALID_VALUE, message);
        return None;
    }
    Some(Fixed::Range(from, to))
}

fn read_suffix(document: &mut Document<'_>) -> Option<Suffix> {
    match document.take("suffix") {
        None => Some(Suffix::None),
        Some(Value::String(text)) => {
            let known = match text.as_str() {
                "county" => Some(Suffix::County),
                "hash" => Some(Suffix::Hash),
                "any" => Some(Suffix::Any),
                _ => None,
            };
            if known.is_none() {
                document.problem("suffix", code::INVALID_VALUE, "must be county, hash or any");
            }
            known
        }
        Some(other) => {
            document.problem("suffix", code::INVALID_TYPE, format!("must be a text, not {}", kind(&other)));
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn lookup(text: &str) -> Known {
        Catalogue::built_in().lookup(&ErrorCode::new(text).unwrap())
    }

    #[test]
    fn every_code_and_both_ends_of_every_range_are_known() {
        for (codes, phase, category) in [
            (vec!["00001"], "Preprocess", "Preprocess"),
            (vec!["01001", "01001Cook"], "Prepare", "Queue"),
            (vec!["01002", "01002Hamilton"], "Prepare", "Infrastructure"),
            (vec!["01003", "01006", "01004Cook"], "Prepare", "Input file"),
            (vec!["01008", "01015", "01015Cook"], "Prepare", "Storage and configuration"),
            (vec!["01016", "01020", "01018St. Johns"], "Prepare", "Task token"),
            (vec!["10001", "10005", "10003Cook"], "Prepare", "Input Validation"),
            (vec!["10010", "10016"], "Prepare", "Missing File"),
            (vec!["10020", "10024"], "Prepare", "Workflow/Flow"),
            (vec!["10030", "10036"], "Prepare", "Platform/HTTP"),
            (vec!["10040", "10045"], "Prepare", "Frame/Navigation"),
            (vec!["10050", "10054", "10050Broward"], "Prepare", "Timeout"),
            (vec!["10060", "10064"], "Prepare", "Context"),
            (vec!["10070", "10075"], "Prepare", "Browser"),
            (vec!["10080", "10084"], "Prepare", "Selector"),
            (vec!["10090", "10097"], "Prepare", "Network"),
            (vec!["10100", "10103"], "Prepare", "Interaction"),
            (vec!["10110", "10116"], "Prepare", "File System"),
            (vec!["10120", "10122"], "Prepare", "JSON"),
            (vec!["10125", "10133"], "Prepare", "Network (undici)"),
            (vec!["10135", "10139"], "Prepare", "Archive"),
            (vec!["10140", "10148"], "Prepare", "Runtime"),
            (vec!["10999", "10999Lee"], "Prepare", "Unknown"),
            (vec!["20Cook", "20St. Louis"], "Transform", "Transform"),
            (vec!["30a1b2c3d4e5f6"], "SVL", "Schema validation"),
            (vec!["31001"], "SVL", "Runtime"),
            (vec!["40001"], "Hash", "Hash"),
            (vec!["50001"], "Upload", "Upload"),
            (vec!["70001"], "AutoRepair", "MVL"),
            (vec!["70002"], "AutoRepair", "SVL"),
        ] {
            for code in codes {
                let known = lookup(code);
                assert_eq!(known.phase.as_deref(), Some(phase), "{code}");
                assert_eq!(known.category.as_deref(), Some(category), "{code}");
                assert!(known.description.is_some() && known.form.is_some(), "{code}");
            }
        }
        let code = super::super::validation_code("must be string", "/a", "Cook");
        assert_eq!(Catalogue::built_in().lookup(&code).category.as_deref(), Some("Schema validation"));
        assert_eq!(lookup("990123456789abcdef").category.as_deref(), Some("Task"));
        assert_eq!(lookup("99other").form.as_deref(), Some("99other"));
    }

    #[test]
    fn what_lies_between_has_a_phase_and_no_category() {
        for (code, phase) in [
            ("01007", Some("Prepare")),
            ("01007Cook", Some("Prepare")),
            ("01021", Some("Prepare")),
            ("10006", Some("Prepare")),
            ("10009Cook", Some("Prepare")),
            ("10017", Some("Prepare")),
            ("10123", Some("Prepare")),
            ("10134", Some("Prepare")),
            ("10149", Some("Prepare")),
            ("100501", Some("Prepare")),
            ("20001", Some("Transform")),
            ("30xyz", Some("SVL")),
            ("310011", Some("SVL")),
            ("40001Cook", Some("Hash")),
            ("70003", Some("AutoRepair")),
            ("00002", Some("Preprocess")),
            ("42x", None),
        ] {
            let known = lookup(code);
            assert_eq!((known.phase.as_deref(), known.category, known.form), (phase, None, None), "{code}");
            assert_eq!(known.description.is_some(), phase.is_some(), "{code}");
        }
        assert_eq!(lookup("10050Broward").county.as_deref(), Some("Broward"));
        assert_eq!(lookup("20St. Louis").county.as_deref(), Some("St. Louis"));
        assert_eq!(lookup("10050").county, None);
    }

    #[test]
    fn a_users_file_comes_first_and_the_longest_form_wins() {
        let file = json!({
            "types": [{ "type": "60", "phase": "Submit", "description": "Submitting failed." }],
            "codes": [
                { "from": "60001", "to": "60009", "category": "Gas", "description": "No gas." },
                { "code": "60005", "category": "Nonce", "description": "The nonce is taken." },
                { "prefix": "60", "suffix": "any", "category": "Other", "description": "Something else." },
                { "prefix": "60X", "suffix": "any", "category": "X", "description": "X." },
                { "code": "40001", "category": "Hash", "description": "As we see it.", "phase": "Mint" }
            ]
        });
        let catalogue = Catalogue::built_in().with(file).unwrap();
        for (code, category, phase) in [
            ("60001", "Gas", "Submit"),
            ("60005", "Nonce", "Submit"),
            ("60010", "Other", "Submit"),
            ("60001a", "Other", "Submit"),
            ("60X1", "X", "Submit"),
            ("40001", "Hash", "Mint"),
            ("20Cook", "Transform", "Transform"),
        ] {
            let known = catalogue.lookup(&ErrorCode::new(code).unwrap());
            assert_eq!(
                (known.category.as_deref(), known.phase.as_deref()),
                (Some(category), Some(phase)),
                "{code}"
            );
        }
        assert_eq!(catalogue.entries().len(), Catalogue::built_in().entries().len() + 5);
        let sixty = ErrorType::parse("60").unwrap();
        assert_eq!(catalogue.describe_type(sixty), Some((Some("Submit"), "Submitting failed.")));
    }

    #[test]
    fn every_mistake_of_a_file_has_its_place() {
        let entry = |fields: Value| {
            let mut entry = json!({ "code": "60001", "description": "x" });
            entry.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
            json!({ "codes": [entry] })
        };
        for (file, path, expected) in [
            (json!([]), "", code::INVALID_TYPE),
            (json!({ "code": [] }), "code", code::UNKNOWN_FIELD),
            (json!({ "codes": {} }), "codes", code::INVALID_TYPE),
            (json!({ "codes": [1] }), "codes[0]", code::INVALID_TYPE),
            (json!({ "types": [{ "type": "6", "description": "x" }] }), "types[0].type", code::INVALID_VALUE),
            (json!({ "types": [{ "description": "x" }] }), "types[0].type", code::MISSING_FIELD),
            (json!({ "types": [{ "type": "60" }] }), "types[0].description", code::MISSING_FIELD),
            (
                json!({ "types": [{ "type": "60", "description": "x" }, { "type": "60", "description": "y" }] }),
                "types[1].type",
                code::INVALID_VALUE,
            ),
            (entry(json!({ "description": null })), "codes[0].description", code::MISSING_FIELD),
            (entry(json!({ "code": "X1" })), "codes[0].code", code::INVALID_VALUE),
            (entry(json!({ "code": null })), "codes[0]", code::ONE_OF),
            (entry(json!({ "prefix": "60" })), "codes[0]", code::ONE_OF),
            (entry(json!({ "suffix": "x" })), "codes[0].suffix", code::INVALID_VALUE),
            (entry(json!({ "suffix": 1 })), "codes[0].suffix", code::INVALID_TYPE),
            (entry(json!({ "note": "x" })), "codes[0].note", code::UNKNOWN_FIELD),
            (entry(json!({ "code": null, "prefix": "60" })), "codes[0].suffix", code::INVALID_VALUE),
            (
                entry(json!({ "code": null, "prefix": "6x", "suffix": "any" })),
                "codes[0].prefix",
                code::INVALID_VALUE,
            ),
            (entry(json!({ "code": null, "from": "60001" })), "codes[0].to", code::MISSING_FIELD),
            (
                entry(json!({ "code": null, "from": "60002", "to": "60001" })),
                "codes[0].to",
                code::INVALID_VALUE,
            ),
            (
                entry(json!({ "code": null, "from": "60001", "to": "6001" })),
                "codes[0].to",
                code::INVALID_VALUE,
            ),
            (
                entry(json!({ "code": null, "from": "60a", "to": "60001" })),
                "codes[0].from",
                code::INVALID_VALUE,
            ),
            (
                json!({ "codes": [
                    { "from": "60001", "to": "60005", "description": "x" },
                    { "from": "60005", "to": "60006", "description": "y" }
                ] }),
                "codes[1]",
                code::INVALID_VALUE,
            ),
            (json!({ "codes": vec![Value::Null; ENTRIES_MAX + 1] }), "codes", code::TOO_LONG),
        ] {
            let problems = Catalogue::built_in().with(file.clone()).unwrap_err();
            let listed: Vec<_> =
                problems.listed.iter().map(|problem| (problem.path.as_str(), problem.code)).collect();
            assert_eq!(listed, [(path, expected)], "{file}");
        }
    }

    proptest! {
        #[test]
        fn every_code_has_an_answer_of_its_own_type(text in "[0-9]{2}[0-9a-zA-Z .é]{1,12}") {
            let code = ErrorCode::new(&text).unwrap();
            let known = Catalogue::built_in().lookup(&code);
            prop_assert_eq!(known.error_type.as_str(), &text[..2]);
            prop_assert_eq!(known.form.is_some(), known.category.is_some());
            prop_assert!(known.form.is_none_or(|form| form.starts_with(&text[..2])));
        }
    }
}
