//! The error sanitizer: what must not be seen is taken out of a text before it is stored or shown.
//!
//! It is applied at the one place where a text enters an event, and running it again changes nothing.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex_lite::{Captures, Regex};

use crate::security::secrets::Secrets;

/// The longest text that is kept, in characters.
pub const CLEAN_CHARS_MAX: usize = 2_000;
/// Secrets shorter than this are not looked for: they would be found everywhere.
pub const SECRET_CHARS_MIN: usize = 8;
/// What takes the place of a secret.
pub const REDACTED: &str = "[REDACTED]";

/// How many bytes are looked at for each character that may be kept. Further ones could not be kept anyway.
const READ_BYTES_PER_CHAR: usize = 8;
/// Taking out one secret may show another. Texts that do not come to rest are dropped whole.
const ROUNDS_MAX: usize = 8;

/// Takes secrets and home directories out of error texts.
#[derive(Debug, Clone, Default)]
pub struct ErrorSanitizer {
    secrets: Secrets,
    home: Option<String>,
}

impl ErrorSanitizer {
    /// `secrets` are values that must never be seen; `home` is the home directory of the process.
    pub fn new(secrets: Vec<String>, home: Option<String>) -> Self {
        Self::with(Secrets::of(secrets), home)
    }

    /// The same with secrets that are known already.
    pub fn with(secrets: Secrets, home: Option<String>) -> Self {
        let home = home.map(|home| home.trim_end_matches('/').to_owned());
        Self { secrets, home: home.filter(|home| home.starts_with('/') && home.len() > 1) }
    }

    /// The text without what must not be seen, at most 2,000 characters of it.
    pub fn clean(&self, text: &str) -> String {
        self.clean_within(text, CLEAN_CHARS_MAX)
    }

    /// The same with at most `chars_max` characters.
    pub fn clean_within(&self, text: &str, chars_max: usize) -> String {
        // Before the cut: it must not leave half of one.
        let whole = self.secrets.clean_text(text);
        let mut clean = cut_bytes(&whole, READ_BYTES_PER_CHAR * chars_max).to_owned();
        for _ in 0..ROUNDS_MAX {
            let next = cut_chars(&self.pass(&clean), chars_max).to_owned();
            if next == clean {
                return clean;
            }
            clean = next;
        }
        REDACTED.to_owned()
    }

    fn pass(&self, text: &str) -> String {
        let mut text = self.secrets.clean_text(text);
        for rule in RULES.iter() {
            if let Cow::Owned(changed) = rule.apply(&text) {
                text = Cow::Owned(changed);
            }
        }
        match &self.home {
            Some(home) => without_home(&text, home),
            None => text.into_owned(),
        }
    }
}

/// A pattern, and how much of a match stays. Its group `keep` stays, if it has one.
struct Rule {
    pattern: Regex,
    replacement: &'static str,
    /// Values that are ordinary words and no secrets.
    spares_words: bool,
}

impl Rule {
    fn apply<'t>(&self, text: &'t str) -> Cow<'t, str> {
        self.pattern.replace_all(text, |found: &Captures<'_>| {
            let whole = found.get(0).map_or("", |whole| whole.as_str());
            let value = found.name("value").map_or("", |value| value.as_str());
            if self.spares_words && WORDS.iter().any(|word| word.eq_ignore_ascii_case(value)) {
                return whole.to_owned();
            }
            let kept = found.name("keep").map_or("", |kept| kept.as_str());
            format!("{kept}{}", self.replacement)
        })
    }
}

/// What follows `Basic` or `Bearer` in plain sentences.
const WORDS: [&str; 9] =
    ["auth", "authentication", "authorization", "token", "tokens", "credentials", "realm", "is", "and"];

/// The patterns in their order. None of them needs to see what follows a match, so a text that is cut matches nothing
/// that the whole text did not.
static RULES: LazyLock<Vec<Rule>> = LazyLock::new(|| {
    let rule = |pattern: &str| Rule {
        pattern: Regex::new(pattern).expect("the patterns are tested"),
        replacement: REDACTED,
        spares_words: false,
    };
    vec![
        // PEM blocks, whole or cut off.
        rule(r"-----BEGIN [A-Z0-9 ]+-----[\s\S]*?(?:-----END [A-Z0-9 ]+-----|$)"),
        // Slack webhooks and tokens.
        rule(r#"https://hooks\.slack\.com/[^\s"'<>]+"#),
        rule(r"\bxox[a-z]-[A-Za-z0-9-]+"),
        // Keys of providers, and our own.
        rule(r"\bsk-ant-[A-Za-z0-9_-]+"),
        rule(r"\bsk-[A-Za-z0-9_-]{16,}"),
        rule(r"\b(?:AKIA|ASIA)[0-9A-Z]{16,}"),
        rule(r"\bgh[a-z]_[A-Za-z0-9]{20,}"),
        rule(r"\bAIza[A-Za-z0-9_-]{30,}"),
        rule(r"\btm_[A-Za-z0-9_-]{12}_[A-Za-z0-9_-]{20,}"),
        // JSON web tokens.
        rule(r"\beyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?"),
        // Headers.
        Rule {
            spares_words: true,
            ..rule(r"(?i)(?P<keep>\b(?:bearer|basic)\s+)(?P<value>[A-Za-z0-9._~+/=-]+)")
        },
        // A user's name and password in a URL.
        Rule {
            replacement: "[REDACTED]@",
            ..rule(r"(?P<keep>\b[A-Za-z][A-Za-z0-9+.-]*://)[^/\s:@]*:[^/\s]*@")
        },
        // Values of a query.
        rule(
            r#"(?i)(?P<keep>[?&;][^=&;\s]*(?:token|key|secret|signature|password|sig)[^=&;\s]*=)[^&;\s"'<>#]+"#,
        ),
        // Passwords and task tokens by their names, and long values after the name of a secret.
        rule(r#"(?i)(?P<keep>(?:password|passwd|task_?token)["']?\s*[:=]\s*["']?)[^\s"',;&\[][^\s"',;&]*"#),
        rule(
            r#"(?i)(?P<keep>(?:secret|token|key|credential)[A-Za-z0-9_-]*["']?\s*[:=]\s*["']?)[A-Za-z0-9/+=_.-]{40,}"#,
        ),
        // Home directories.
        Rule { replacement: "~", ..rule(r"(?:/home|/Users|\b[A-Za-z]:\\Users)[/\\][A-Za-z0-9._-]+") },
    ]
});

/// Puts `~` for a home directory, where it ends a path or another part follows.
fn without_home(text: &str, home: &str) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(home) {
        let (before, after) = (&rest[..at], &rest[at + home.len()..]);
        clean.push_str(before);
        let goes_on =
            after.chars().next().is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
        clean.push_str(if goes_on { home } else { "~" });
        rest = after;
    }
    clean.push_str(rest);
    clean
}

fn cut_chars(text: &str, max: usize) -> &str {
    text.char_indices().nth(max).map_or(text, |(end, _)| &text[..end])
}

fn cut_bytes(text: &str, max: usize) -> &str {
    let mut end = max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sanitizer() -> ErrorSanitizer {
        let secrets = ["hunter2hunter2", "hunter2hunter2-and-more", "short", "REDACTED", "ACTED]xx"];
        ErrorSanitizer::new(secrets.map(str::to_owned).to_vec(), Some("/srv/tide/".to_owned()))
    }

    #[test]
    fn secrets_are_taken_out() {
        let jwt = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc_DEF-123";
        let forty = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
        for (text, expected) in [
            ("plain: exit status 1 in task-runner-something-long".to_owned(), None),
            ("key sk-ant-api03-abc_DEF".to_owned(), Some("key [REDACTED]")),
            ("key sk-abcdefghijklmnop1234".to_owned(), Some("key [REDACTED]")),
            ("id AKIAIOSFODNN7EXAMPLE!".to_owned(), Some("id [REDACTED]!")),
            ("id ASIAIOSFODNN7EXAMPLE".to_owned(), Some("id [REDACTED]")),
            (format!("aws_secret_access_key = {forty}"), Some("aws_secret_access_key = [REDACTED]")),
            (format!("{{\"secretKey\":\"{forty}\"}}"), Some("{\"secretKey\":\"[REDACTED]\"}")),
            (format!("sum {forty}"), None),
            ("Authorization: Bearer abc.def".to_owned(), Some("Authorization: Bearer [REDACTED]")),
            ("authorization: basic dXNlcjpwYXNz".to_owned(), Some("authorization: basic [REDACTED]")),
            ("Basic authentication failed, no Bearer token".to_owned(), None),
            (format!("token {jwt}, expired"), Some("token [REDACTED], expired")),
            ("postgres://bob:s3cr3t@db/x".to_owned(), Some("postgres://[REDACTED]@db/x")),
            ("https://a:p@ss@host/".to_owned(), Some("https://[REDACTED]@host/")),
            ("https://host:8080/a@b".to_owned(), None),
            ("GET /x?user=1&api_key=abc&b=2".to_owned(), Some("GET /x?user=1&api_key=[REDACTED]&b=2")),
            ("https://x/?X-Amz-Signature=ff00".to_owned(), Some("https://x/?X-Amz-Signature=[REDACTED]")),
            ("password=hunter9 rest".to_owned(), Some("password=[REDACTED] rest")),
            ("\"password\": \"hunter9\"".to_owned(), Some("\"password\": \"[REDACTED]\"")),
            ("taskToken: AQCE/x==".to_owned(), Some("taskToken: [REDACTED]")),
            (
                "a -----BEGIN RSA PRIVATE KEY-----\nMII\n-----END RSA PRIVATE KEY----- b".to_owned(),
                Some("a [REDACTED] b"),
            ),
            ("a -----BEGIN PRIVATE KEY-----\nMII".to_owned(), Some("a [REDACTED]")),
            ("xoxb-123-abc".to_owned(), Some("[REDACTED]")),
            ("to https://hooks.slack.com/services/T/B/x failed".to_owned(), Some("to [REDACTED] failed")),
            (format!("key tm_{}_{} ", "a".repeat(12), "b".repeat(43)), Some("key [REDACTED] ")),
            ("env has hunter2hunter2-and-more".to_owned(), Some("env has [REDACTED]")),
            ("env has hunter2hunter2!".to_owned(), Some("env has [REDACTED]!")),
            ("too short to hide".to_owned(), None),
            ("open /home/ann/x and /Users/bob".to_owned(), Some("open ~/x and ~")),
            ("open C:\\Users\\ann\\x".to_owned(), Some("open ~\\x")),
            ("open /srv/tide/x, /srv/tide and /srv/tides".to_owned(), Some("open ~/x, ~ and /srv/tides")),
        ] {
            assert_eq!(sanitizer().clean(&text), expected.unwrap_or(&text), "{text}");
        }
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let text = "é".repeat(5_000);
        assert_eq!(sanitizer().clean(&text), "é".repeat(CLEAN_CHARS_MAX));
        let huge = "x".repeat(10_000_000);
        assert_eq!(sanitizer().clean(&huge).len(), CLEAN_CHARS_MAX);
        // A secret at the cut leaves nothing of itself.
        let text = format!("{}AKIAIOSFODNN7EXAMPLE", "x ".repeat(995));
        assert!(!sanitizer().clean(&text).contains("AKIA"));
        // Nor does one at the cut before, which comes to the front when much before it is taken out.
        let key = format!(
            "-----BEGIN X-----{}-----END X-----",
            "k".repeat(READ_BYTES_PER_CHAR * CLEAN_CHARS_MAX - 40)
        );
        let clean = sanitizer().clean(&format!("{key}hunter2hunter2-and-more"));
        assert!(!clean.contains("hunter2"), "{clean}");
    }

    #[test]
    fn a_home_at_the_root_is_no_home() {
        for home in ["", "/", "relative"] {
            let sanitizer = ErrorSanitizer::new(Vec::new(), Some(home.to_owned()));
            assert_eq!(sanitizer.clean("a/b relative /"), "a/b relative /");
        }
    }

    /// Pieces of what the patterns look for, in any order.
    fn any_text() -> impl Strategy<Value = String> {
        let piece = prop::sample::select(vec![
            "sk-ant-",
            "sk-",
            "AKIA",
            "IOSFODNN7EXAMPLE",
            "Bearer ",
            "basic ",
            "eyJ",
            ".",
            "://",
            "user:",
            "@",
            "?",
            "&",
            "token=",
            "key",
            "secret",
            "password",
            "=",
            ": ",
            "\"",
            "-----BEGIN X-----",
            "-----END X-----",
            "-----",
            "xoxb-",
            "https://hooks.slack.com/",
            "[REDACTED]",
            "[",
            "REDACTED",
            "]",
            "hunter2hunter2",
            "xx",
            "ACTED]xx",
            "/home/",
            "/Users/",
            "ann",
            "/srv/tide",
            "~",
            "/",
            " ",
            "\n",
            "é",
            "a",
            "7",
            "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
            "tm_abcdefghijkl_",
        ]);
        let pieces =
            prop::collection::vec(prop_oneof![8 => piece.prop_map(str::to_owned), 1 => ".{0,9}"], 0..60);
        (pieces, 0usize..3).prop_map(|(pieces, copies)| pieces.concat().repeat(1 + copies * 6))
    }

    proptest! {
        #[test]
        fn running_it_twice_changes_nothing(text in any_text()) {
            let once = sanitizer().clean(&text);
            prop_assert_eq!(sanitizer().clean(&once), once.clone());
            prop_assert!(once.chars().count() <= CLEAN_CHARS_MAX);
            prop_assert!(!once.contains("hunter2hunter2"));
        }
    }
}
