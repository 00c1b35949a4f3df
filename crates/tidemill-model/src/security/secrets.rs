//! Values that must not be seen: by what names variables hold them, in what forms they are printed, and how they are
//! taken out of texts, files and JSON.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer};

use crate::security::sanitize::{REDACTED, SECRET_CHARS_MIN};
use crate::values::hex;
use crate::values::json::Json;

/// What the names of variables hold whose values are secrets.
const NAME_PARTS: [&str; 10] =
    ["TOKEN", "SECRET", "KEY", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "COOKIE", "AUTH", "HEADERS"];
/// The columns at which `base64` breaks its lines.
const BASE64_COLUMNS: usize = 76;
/// A beginning of a secret that is shorter gives nothing away, and stands in many texts.
const BEGINNING_BYTES_MIN: usize = 4;

/// Whether a variable of this name holds a secret.
pub fn is_secret_name(name: &str) -> bool {
    // An author is no secret.
    let name = name.to_ascii_uppercase().replace("AUTHORI", "AUTH").replace("AUTHOR", "");
    NAME_PARTS.iter().any(|part| name.contains(part))
}

/// Knows secrets in all forms that are looked for. Cheap to clone.
#[derive(Clone, Default)]
pub struct Secrets(Arc<Forms>);

#[derive(Default)]
struct Forms {
    /// By their first two bytes; the longest first.
    by_beginning: BTreeMap<u16, Vec<Vec<u8>>>,
    /// A bit for each beginning that there is. Most texts are passed over by this alone.
    beginnings: Vec<u64>,
    bytes_max: usize,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets").field("beginnings", &self.0.by_beginning.len()).finish_non_exhaustive()
    }
}

impl Secrets {
    /// Secrets by their values. Those of less than eight characters are not looked for.
    ///
    /// Each is known as it is, trimmed, line by line, and each of these as a part of JSON (also of JSON within JSON), in
    /// base64, in hexadecimal digits and percent-encoded.
    pub fn of(values: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        Self::at_least(values, SECRET_CHARS_MIN)
    }

    /// The same with another least number of characters; two at least.
    pub(crate) fn at_least(values: impl IntoIterator<Item = impl AsRef<[u8]>>, chars_min: usize) -> Self {
        let mut forms = BTreeSet::new();
        for value in values {
            let value = value.as_ref();
            let lines = value.split(|byte| matches!(byte, b'\n' | b'\r'));
            let parts: BTreeSet<&[u8]> = [value, value.trim_ascii()]
                .into_iter()
                .chain(lines.map(<[u8]>::trim_ascii))
                .filter(|part| is_long_enough(part, chars_min))
                .collect();
            for part in parts {
                add_forms(part, &mut forms);
            }
        }
        Self::of_forms(forms)
    }

    /// Secrets that are looked for as they are, in no other form.
    pub(crate) fn plain(values: impl IntoIterator<Item = impl AsRef<[u8]>>, chars_min: usize) -> Self {
        let values = values.into_iter().map(|value| value.as_ref().to_vec());
        Self::of_forms(values.filter(|value| is_long_enough(value, chars_min)).collect())
    }

    fn of_forms(mut forms: BTreeSet<Vec<u8>>) -> Self {
        if forms.is_empty() {
            return Self::default();
        }
        // What stands for a secret is none: to look for it would find it in every text that was cleaned.
        forms.retain(|form| !contains(REDACTED.as_bytes(), form));
        let mut known = Forms { beginnings: vec![0; 1 << 10], ..Forms::default() };
        for form in forms {
            let beginning = beginning(&form);
            known.beginnings[usize::from(beginning >> 6)] |= 1 << (beginning & 63);
            known.bytes_max = known.bytes_max.max(form.len());
            known.by_beginning.entry(beginning).or_default().push(form);
        }
        for forms in known.by_beginning.values_mut() {
            forms.sort_by_key(|form| Reverse(form.len()));
        }
        if known.by_beginning.is_empty() { Self::default() } else { Self(Arc::new(known)) }
    }

    /// The secrets among variables: those whose names `is_secret`, and the users and passwords in the URLs of all.
    pub fn of_variables<'a>(
        variables: impl IntoIterator<Item = (&'a [u8], &'a [u8])>,
        is_secret: impl Fn(&str) -> bool,
    ) -> Self {
        let mut values: Vec<Vec<u8>> = Vec::new();
        for (name, value) in variables {
            // A name that is no text is none that we know.
            let name = std::str::from_utf8(name).unwrap_or_default();
            if is_secret(name) {
                values.push(value.to_vec());
                if name.to_ascii_uppercase().contains("HEADER") {
                    values.extend(header_values(value));
                }
            }
            values.extend(users_of_urls(value));
        }
        Self::of(values)
    }

    /// The bytes without secrets.
    pub fn clean<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        self.clean_to(bytes, bytes.len())
    }

    /// The beginning of something longer without secrets, and without the beginning of one that was cut.
    pub fn clean_beginning<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let is_begun = |rest: &[u8]| self.beginning_as(rest).iter().any(|form| form.starts_with(rest));
        let first = bytes.len().saturating_sub(self.0.bytes_max);
        let last = (bytes.len() + 1).saturating_sub(BEGINNING_BYTES_MIN);
        let begun = (first..last).find(|at| is_begun(&bytes[*at..]));
        self.clean_to(bytes, begun.unwrap_or(bytes.len()))
    }

    /// The bytes without secrets, and without what stands behind `end`.
    fn clean_to<'a>(&self, bytes: &'a [u8], end: usize) -> Cow<'a, [u8]> {
        if self.is_empty() {
            return Cow::Borrowed(bytes);
        }
        let mut clean = Vec::new();
        // Secrets that overlap are taken out as one.
        let mut hidden_to = 0;
        let found = (0..end).filter_map(|at| Some((at, at + self.found_at(&bytes[at..])?)));
        let behind = (end < bytes.len()).then_some((end, bytes.len()));
        for (from, to) in found.chain(behind) {
            if from >= hidden_to {
                clean.extend_from_slice(&bytes[hidden_to..from]);
                clean.extend_from_slice(REDACTED.as_bytes());
            }
            hidden_to = hidden_to.max(to);
        }
        if hidden_to == 0 {
            return Cow::Borrowed(bytes);
        }
        clean.extend_from_slice(&bytes[hidden_to..]);
        Cow::Owned(clean)
    }

    /// A text without secrets.
    pub fn clean_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.clean(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(clean) => Cow::Owned(String::from_utf8_lossy(&clean).into_owned()),
        }
    }

    /// A JSON value without secrets in its texts, its names and its numbers, however they are written. All else stays
    /// letter by letter.
    pub fn clean_json(&self, json: Json) -> Json {
        if self.is_empty() {
            return json;
        }
        let text = json.as_str();
        let mut clean = String::new();
        let mut kept_from = 0;
        for token in Tokens::of(text) {
            if let Some(replacement) = self.clean_token(&text[token.clone()]) {
                clean.push_str(&text[kept_from..token.start]);
                clean.push_str(&replacement);
                kept_from = token.end;
            }
        }
        if kept_from == 0 {
            return json;
        }
        clean.push_str(&text[kept_from..]);
        Json::parse(clean).expect("texts took the place of texts and numbers")
    }

    /// What takes the place of a text or a number of JSON, if there are secrets in it.
    pub(crate) fn clean_token(&self, token: &str) -> Option<String> {
        if self.is_empty() {
            return None;
        }
        if token.starts_with('"') {
            return self.without_in_quotes(token);
        }
        let is_secret = matches!(self.clean(token.as_bytes()), Cow::Owned(_));
        is_secret.then(|| quoted(REDACTED))
    }

    /// A text of JSON with its quotes, if there are secrets in it.
    fn without_in_quotes(&self, quoted_text: &str) -> Option<String> {
        let Decoded(bytes) = serde_json::from_str(quoted_text).ok()?;
        match self.clean(&bytes) {
            Cow::Borrowed(_) => None,
            Cow::Owned(clean) => Some(quoted(&String::from_utf8_lossy(&clean))),
        }
    }

    fn is_empty(&self) -> bool {
        self.0.by_beginning.is_empty()
    }

    /// How long the secret is that stands at the beginning of the bytes.
    fn found_at(&self, bytes: &[u8]) -> Option<usize> {
        self.beginning_as(bytes).iter().find(|form| bytes.starts_with(form)).map(Vec::len)
    }

    /// The forms that begin with the same two bytes.
    fn beginning_as(&self, bytes: &[u8]) -> &[Vec<u8>] {
        if bytes.len() < 2 {
            return &[];
        }
        let beginning = beginning(bytes);
        let is_there = self.0.beginnings[usize::from(beginning >> 6)] & (1 << (beginning & 63)) != 0;
        if is_there { &self.0.by_beginning[&beginning] } else { &[] }
    }
}

fn is_long_enough(bytes: &[u8], chars_min: usize) -> bool {
    std::str::from_utf8(bytes).map_or(bytes.len(), |text| text.chars().count()) >= chars_min
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

/// Two bytes as a number. There are no shorter forms.
fn beginning(bytes: &[u8]) -> u16 {
    u16::from_be_bytes([bytes[0], bytes[1]])
}

fn add_forms(part: &[u8], forms: &mut BTreeSet<Vec<u8>>) {
    forms.insert(part.to_vec());
    if let Ok(text) = std::str::from_utf8(part) {
        let once = within_quotes(text);
        let once_ascii = ascii_only(&once);
        // Some programs escape slashes too.
        let slashes = [&once, &once_ascii].map(|escaped| escaped.replace('/', "\\/"));
        for escaped in [once, once_ascii].into_iter().chain(slashes) {
            forms.insert(within_quotes(&escaped).into_bytes());
            forms.insert(escaped.into_bytes());
        }
    }
    for engine in [&STANDARD, &URL_SAFE] {
        let encoded = engine.encode(part);
        if encoded.len() > BASE64_COLUMNS {
            let lines =
                encoded.as_bytes().chunks(BASE64_COLUMNS).filter(|line| line.len() >= SECRET_CHARS_MIN);
            forms.extend(lines.map(<[u8]>::to_vec));
        }
        forms.insert(encoded.into_bytes());
    }
    for engine in [&STANDARD_NO_PAD, &URL_SAFE_NO_PAD] {
        // In the middle of something longer it begins at one of three places, and only the letters that it alone
        // decides are always the same.
        for before in 0..3 {
            let encoded = engine.encode([&vec![0; before], part].concat()).into_bytes();
            let (from, to) = ((before * 8).div_ceil(6), (before + part.len()) * 8 / 6);
            forms.insert(encoded[from..to].to_vec());
        }
    }
    let digits = hex::encode(part);
    forms.insert(digits.to_ascii_uppercase().into_bytes());
    forms.insert(digits.into_bytes());
    for spared in ["-_.~", "-_.~!*'()", "-_.~/", "-_.~!*'();,/?:@&=+$#"] {
        let encode = |digits: fn(u8) -> String| -> Vec<u8> {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || spared.as_bytes().contains(&byte);
            let letters = part
                .iter()
                .map(|byte| if is_plain(*byte) { char::from(*byte).to_string() } else { digits(*byte) });
            letters.collect::<String>().into_bytes()
        };
        forms.insert(encode(|byte| format!("%{byte:02X}")));
        forms.insert(encode(|byte| format!("%{byte:02x}")));
    }
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn within_quotes(text: &str) -> String {
    let quoted = quoted(text);
    quoted[1..quoted.len() - 1].to_owned()
}

/// With escapes for all that is not ASCII, as many programs write JSON.
fn ascii_only(text: &str) -> String {
    let mut ascii = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_ascii() {
            ascii.push(letter);
        } else {
            ascii.extend(letter.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    ascii
}

/// What stands behind the names of headers, one a line, and its last word: `Authorization: Bearer THIS`.
fn header_values(value: &[u8]) -> Vec<Vec<u8>> {
    let mut values = Vec::new();
    for line in value.split(|byte| *byte == b'\n') {
        if let Some(colon) = line.iter().position(|byte| *byte == b':') {
            let said = line[colon + 1..].trim_ascii();
            values.push(said.to_vec());
            values.extend(said.rsplit(|byte| *byte == b' ').next().map(<[u8]>::to_vec));
        }
    }
    values
}

/// User with password, and the password alone, of every URL in a value, as they are written and decoded.
fn users_of_urls(value: &[u8]) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut rest = value;
    while let Some(at) = rest.windows(3).position(|window| window == b"://") {
        rest = &rest[at + 3..];
        let end =
            rest.iter().position(|byte| matches!(byte, b'/' | b'?' | b'#') || byte.is_ascii_whitespace());
        let authority = &rest[..end.unwrap_or(rest.len())];
        let Some(end) = authority.iter().rposition(|byte| *byte == b'@') else { continue };
        let user = &authority[..end];
        let password = user.iter().position(|byte| *byte == b':').map(|colon| &user[colon + 1..]);
        for part in [Some(user), password].into_iter().flatten() {
            found.extend([part.to_vec(), percent_decoded(part)]);
        }
    }
    found
}

fn percent_decoded(bytes: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        let byte = match after {
            [high, low, ..] if *first == b'%' => std::str::from_utf8(&[*high, *low])
                .ok()
                .and_then(|digits| u8::from_str_radix(digits, 16).ok()),
            _ => None,
        };
        decoded.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    decoded
}

/// Where the texts (with their quotes) and the numbers of a JSON value stand.
pub(crate) struct Tokens<'a>(&'a str, usize);

impl<'a> Tokens<'a> {
    pub(crate) fn of(json: &'a str) -> Self {
        Self(json, 0)
    }
}

impl Iterator for Tokens<'_> {
    type Item = std::ops::Range<usize>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.0.as_bytes();
        let is_number = |byte: u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let begins = |byte: &u8| matches!(byte, b'"' | b'-' | b'0'..=b'9');
        let start = self.1 + bytes[self.1..].iter().position(begins)?;
        let mut end = start + 1;
        if bytes[start] == b'"' {
            while bytes.get(end).is_some_and(|byte| *byte != b'"') {
                end += if bytes[end] == b'\\' { 2 } else { 1 };
            }
            end = (end + 1).min(bytes.len());
        } else {
            end += bytes[end..].iter().take_while(|byte| is_number(**byte)).count();
        }
        self.1 = end;
        Some(start..end)
    }
}

/// The bytes of a text of JSON. Half a surrogate pair is no text and is valid JSON all the same.
struct Decoded(Vec<u8>);

impl<'de> Deserialize<'de> for Decoded {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Take;

        impl Visitor<'_> for Take {
            type Value = Decoded;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Decoded, E> {
                Ok(Decoded(bytes.to_vec()))
            }
        }

        deserializer.deserialize_bytes(Take)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text.to_owned()).unwrap()
    }

    #[test]
    fn names_of_secrets_are_known() {
        for (name, expected) in [
            ("ANTHROPIC_API_KEY", true),
            ("ANTHROPIC_CUSTOM_HEADERS", true),
            ("ANTHROPIC_AUTH_TOKEN", true),
            ("My_Password", true),
            ("PROXY_AUTH", true),
            ("HTTP_AUTHORIZATION", true),
            ("SESSION_COOKIE", true),
            ("DB_CREDENTIALS", true),
            ("GIT_AUTHOR_NAME", false),
            ("CLAUDE_MODEL", false),
            ("PATH", false),
        ] {
            assert_eq!(is_secret_name(name), expected, "{name}");
        }
    }

    #[test]
    fn every_secret_is_taken_out_wherever_it_stands() {
        let secrets =
            Secrets::of(["oauth-secret-longer", "oauth-secret", "short", "longer-than-that", "REDACTED"]);
        for (text, expected) in [
            ("nothing", "nothing"),
            ("oauth-secret", "[REDACTED]"),
            ("a oauth-secretoauth-secret-longer z", "a [REDACTED][REDACTED] z"),
            ("oauth-secre", "oauth-secre"),
            ("oauth-secret-longer-than-that!", "[REDACTED]!"),
            ("short [REDACTED]", "short [REDACTED]"),
        ] {
            assert_eq!(secrets.clean_text(text), expected, "{text}");
        }
        assert!(matches!(secrets.clean(b"nothing"), Cow::Borrowed(_)), "what is clean is not copied");
        assert_eq!(Secrets::of(["seven77"]).clean_text("seven77"), "seven77");
    }

    #[test]
    fn a_secret_is_known_in_the_forms_in_which_it_is_printed() {
        let secret = "p\"ss/wörd+1\nsecond line of it\n";
        let secrets = Secrets::of([secret]);
        let once = serde_json::to_string(secret).unwrap();
        let twice = serde_json::to_string(&once).unwrap();
        let encoded = |before: &str| STANDARD.encode(format!("{before}{secret}{before}"));
        for text in [
            secret.to_owned(),
            secret.trim().to_owned(),
            "p\"ss/wörd+1".to_owned(),
            "second line of it".to_owned(),
            once,
            twice,
            r#"p\"ss/w\u00f6rd+1"#.to_owned(),
            encoded(""),
            encoded("user:"),
            encoded("ab"),
            URL_SAFE_NO_PAD.encode("p\"ss/wörd+1"),
            "p%22ss%2Fw%C3%B6rd%2B1".to_owned(),
            "p%22ss%2fw%c3%b6rd%2b1".to_owned(),
            "702273732f77c3b672642b31".to_owned(),
        ] {
            let clean = secrets.clean_text(&text).into_owned();
            assert!(clean.contains(REDACTED), "{text}");
            // A letter or two at the ends of base64 are shared with what stands beside.
            let rest = clean.replace(REDACTED, "");
            assert!(rest.len() <= 20 && !rest.contains("rd") && !rest.contains("line"), "{text}: {clean}");
        }
        let long = "k".repeat(40) + &"0123456789".repeat(7);
        let wrapped = STANDARD.encode(&long).into_bytes();
        let wrapped: Vec<_> = wrapped.chunks(76).map(String::from_utf8_lossy).collect();
        let clean = Secrets::of([&long]).clean_text(&wrapped.join("\n")).into_owned();
        assert_eq!(clean, "[REDACTED]\n[REDACTED]");
    }

    #[test]
    fn json_is_cleaned_in_its_decoded_texts_and_stays_as_it_is_otherwise() {
        let secrets = Secrets::of(["oauth-secret", "q\"uote-secret", "1234567890", r#"1,"b":2}"#]);
        for (text, expected) in [
            (r#"{"env":["oauth-secret","x"]}"#, r#"{"env":["[REDACTED]","x"]}"#),
            (r#"{"a":1,"b":2}"#, r#"{"a":1,"b":2}"#),
            (r#"["o\u0061uth-secret", 1e400, -0.50]"#, r#"["[REDACTED]", 1e400, -0.50]"#),
            (r#"["q\"uote-secret\\"]"#, r#"["[REDACTED]\\"]"#),
            (
                r#"["\ud800 o\u0061uth-secret","\ud800"]"#,
                "[\"\u{fffd}\u{fffd}\u{fffd} [REDACTED]\",\"\\ud800\"]",
            ),
            (r#"{"oauth-secret":[12345678901,true,null]}"#, r#"{"[REDACTED]":["[REDACTED]",true,null]}"#),
            (r#""oauth-secret""#, r#""[REDACTED]""#),
        ] {
            assert_eq!(secrets.clean_json(json(text)).as_str(), expected, "{text}");
        }
    }

    #[test]
    fn a_secret_that_a_cut_goes_through_leaves_nothing() {
        let secrets = Secrets::of(["oauth-secret"]);
        for (text, expected) in [
            ("x oauth-se", "x [REDACTED]"),
            ("x oauth-secret", "x [REDACTED]"),
            ("oauth-secret oaut", "[REDACTED] [REDACTED]"),
            ("x oau", "x oau"),
            ("", ""),
            ("o", "o"),
        ] {
            assert_eq!(secrets.clean_beginning(text.as_bytes()), expected.as_bytes(), "{text}");
        }
        assert_eq!(Secrets::default().clean_beginning(b"whole"), b"whole".as_slice());
    }

    #[test]
    fn variables_hold_secrets_by_their_names_and_in_their_urls() {
        let variables = [
            ("API_KEY", "api-key-value"),
            ("ANTHROPIC_CUSTOM_HEADERS", "X-One: header-value\nAuthorization: Bearer bearer-value"),
            ("HTTPS_PROXY", "http://ann:p%40ssword1@proxy.test:8080/"),
            ("MODEL", "plain-model-name"),
        ];
        let variables = variables.map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        let secrets = Secrets::of_variables(variables, is_secret_name);
        for (text, expected) in [
            ("api-key-value", "[REDACTED]"),
            ("one header-value", "one [REDACTED]"),
            ("bearer-value", "[REDACTED]"),
            ("http://ann:p%40ssword1@proxy.test:8080/", "http://[REDACTED]@proxy.test:8080/"),
            ("p@ssword1", "[REDACTED]"),
            ("plain-model-name proxy.test", "plain-model-name proxy.test"),
        ] {
            assert_eq!(secrets.clean_text(text), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn nothing_is_left_of_a_secret_and_json_stays_json(
            secret in "[a-c\"\\\\é]{8,12}", before in "[a-c\"\\\\é]{0,5}", after in "[a-c\"\\\\é]{0,5}",
        ) {
            let secrets = Secrets::of([&secret]);
            let text = format!("{before}{secret}{after}");
            prop_assert!(!secrets.clean_text(&text).contains(&secret));
            let value = Json::of(&[serde_json::json!({ &text: text, "n": 1.5 })]);
            let clean: serde_json::Value = secrets.clean_json(value).read().unwrap();
            let is_left = clean[0].as_object().unwrap().iter().any(|(name, value)| {
                name.contains(&secret) || value.as_str().is_some_and(|value| value.contains(&secret))
            });
            prop_assert!(!is_left);
        }
    }
}
