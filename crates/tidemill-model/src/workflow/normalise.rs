//! What two messages of the same error have in common.
//!
//! What varies from one occurrence to the next is replaced by a word in angle brackets: numbers, ids, quoted values,
//! paths, addresses, times. Numbers that tell errors apart stay: a status, an exit code, a signal. Doing it twice changes
//! nothing.

/// The longest normalised message, in characters; the rest tells nobody more.
const NORMAL_CHARS_MAX: usize = 500;
/// More of a message is not looked at.
const READ_CHARS_MAX: usize = 8_000;
/// A quotation that is longer is no quotation but a stray quote.
const QUOTED_CHARS_MAX: usize = 400;
/// Hexadecimal digits in a row, letters and digits among them, that are an id and no word.
const HEX_DIGITS_MIN: usize = 8;
/// A word of letters and digits with at least this many characters and changes between them is an id.
const ID_CHARS_MIN: usize = 8;
const ID_CHANGES_MIN: usize = 3;
/// Putting one placeholder may show another thing to replace.
const ROUNDS_MAX: usize = 16;
const TRACE: &str = "Traceback (most recent call last)";

/// The message with placeholders for what varies, on one line.
pub fn normalise(message: &str) -> String {
    let mut normal = pass(message);
    for _ in 0..ROUNDS_MAX {
        let next = pass(&normal);
        if next == normal {
            return normal;
        }
        normal = next;
    }
    // Nobody's words: a text that is made of quotes and marks, and says nothing.
    "<value>".to_owned()
}

fn pass(message: &str) -> String {
    let text: String = essential(message).chars().take(READ_CHARS_MAX).collect();
    let mut normal = String::with_capacity(text.len().min(NORMAL_CHARS_MAX));
    let mut scan = Scan { text: &text, at: 0, normal: &mut normal, keeps_number: false };
    scan.run();
    cut(normal)
}

/// The part of a text that says what happened: of a Python traceback the last exception, of others what stands before
/// the first frame of a stack. All white space becomes one blank.
fn essential(message: &str) -> String {
    let lines = || message.lines().filter(|line| !line.trim().is_empty());
    let traced = message.contains(TRACE);
    let exception = if traced {
        lines().rfind(|line| !line.starts_with(char::is_whitespace) && !line.contains(TRACE))
    } else {
        None
    };
    let is_frame = |line: &&str| {
        let line = line.trim_start();
        line.starts_with("at ") || line.starts_with("File \"") || line.starts_with("stack backtrace:")
    };
    let mut words: Vec<&str> = match exception {
        Some(line) => line.split_whitespace().collect(),
        None => lines().take_while(|line| !is_frame(line)).flat_map(str::split_whitespace).collect(),
    };
    if words.is_empty() {
        words = message.split_whitespace().collect();
    }
    words.join(" ")
}

fn cut(normal: String) -> String {
    match normal.char_indices().nth(NORMAL_CHARS_MAX) {
        // A placeholder is not cut in half.
        Some((end, _)) => {
            let kept = &normal[..end];
            let kept = match kept.rfind('<') {
                Some(open)
                    if !kept[open..].contains('>')
                        && normal[open..].find('>').is_some_and(|len| len < 10) =>
                {
                    &kept[..open]
                }
                _ => kept,
            };
            kept.trim_end().to_owned()
        }
        None => normal,
    }
}

struct Scan<'t, 'n> {
    text: &'t str,
    at: usize,
    normal: &'n mut String,
    /// The last word announces a number that tells errors apart.
    keeps_number: bool,
}

impl<'t> Scan<'t, '_> {
    fn run(&mut self) {
        while let Some(next) = self.rest().chars().next() {
            let placed = self.placeholder() || self.quoted(next) || self.word();
            if !placed {
                // A mark such as `:` or `[` may stand between a word and its number; others end the sentence.
                self.keeps_number &= matches!(next, ' ' | ':' | '=' | '[' | '(' | '"' | '\'' | '#');
                self.normal.push(next);
                self.at += next.len_utf8();
            }
        }
    }

    fn rest(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn before(&self) -> Option<char> {
        self.text[..self.at].chars().next_back()
    }

    fn take(&mut self, len: usize, placeholder: &str) {
        self.normal.push_str(placeholder);
        self.at += len;
        self.keeps_number = false;
    }

    /// What was replaced before stays.
    fn placeholder(&mut self) -> bool {
        let found = PLACEHOLDERS.into_iter().find(|placeholder| self.rest().starts_with(placeholder));
        if let Some(placeholder) = found {
            self.take(placeholder.len(), placeholder);
        }
        found.is_some()
    }

    /// A value in quotes. A quote within a word is an apostrophe, and the names of a JSON object stay.
    fn quoted(&mut self, quote: char) -> bool {
        if !matches!(quote, '"' | '\'' | '`') || self.before().is_some_and(char::is_alphanumeric) {
            return false;
        }
        let inner = &self.rest()[1..];
        let Some(len) = end_of_quotation(inner, quote) else { return false };
        if len == 0 {
            return false;
        }
        let after = inner[len + 1..].trim_start();
        let is_name =
            after.starts_with(':') && matches!(self.normal.trim_end().chars().next_back(), Some('{' | ','));
        if is_name && inner[..len].chars().all(|c| c.is_alphabetic() || c == '_') {
            self.normal.push_str(&self.rest()[..len + 2]);
            self.keeps_number = announces_number(&inner[..len]);
            self.at += len + 2;
            return true;
        }
        self.take(len + 2, "<value>");
        true
    }

    /// A word up to the next blank or mark, replaced if it varies.
    fn word(&mut self) -> bool {
        let rest = self.rest();
        if self.before().is_some_and(is_of_word) && self.normal.chars().next_back().is_some_and(is_of_word) {
            return false;
        }
        if let Some(len) = url(rest) {
            self.take(len, "<url>");
        } else if let Some(len) = path(rest) {
            self.take(len, "<path>");
        } else if let Some(len) = time(rest) {
            self.take(len, "<time>");
        } else if let Some(len) = address(rest) {
            self.take(len, "<address>");
        } else {
            let len = rest.find(|c: char| !is_of_word(c)).unwrap_or(rest.len());
            if len == 0 {
                return false;
            }
            self.plain_word(len);
        }
        true
    }

    fn plain_word(&mut self, len: usize) {
        let word = &self.rest()[..len];
        if is_id(word) {
            return self.take(len, "<id>");
        }
        let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
        if is_number && self.keeps_number && word.len() <= 3 {
            self.normal.push_str(word);
            self.at += len;
            self.keeps_number = false;
            return;
        }
        if is_number {
            let len = len + fraction(&self.rest()[len..]);
            return self.take(len, "<n>");
        }
        self.normal.push_str(&without_numbers(word));
        self.at += len;
        self.keeps_number = announces_number(word);
    }
}

const PLACEHOLDERS: [&str; 7] = ["<n>", "<id>", "<value>", "<path>", "<url>", "<time>", "<address>"];

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '-'
}

/// Words whose number is the error itself.
fn announces_number(word: &str) -> bool {
    ["status", "code", "errno", "http", "signal", "statuscode", "exit"]
        .iter()
        .any(|known| word.eq_ignore_ascii_case(known))
}

/// The length of a quotation, up to a quote that no letter follows.
fn end_of_quotation(inner: &str, quote: char) -> Option<usize> {
    let mut chars = inner.char_indices().take(QUOTED_CHARS_MAX).peekable();
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            chars.next();
        } else if c == quote && !chars.peek().is_some_and(|(_, next)| next.is_alphanumeric()) {
            return Some(at);
        }
    }
    None
}

/// The end of what has no blank, bracket or quote in it, without the marks that end a sentence.
fn unbroken(text: &str) -> usize {
    let stop = |c: char| {
        c.is_whitespace()
            || matches!(c, '"' | '\'' | '`' | '<' | '>' | '(' | ')' | '[' | ']' | '{' | '}' | ',' | ';')
    };
    let end = text.find(stop).unwrap_or(text.len());
    text[..end].trim_end_matches(['.', ':', '!', '?']).len()
}

fn url(text: &str) -> Option<usize> {
    let scheme = text.find("://").filter(|at| *at > 0)?;
    let is_scheme = text[..scheme].chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
    let len = unbroken(text);
    (is_scheme && text.starts_with(|c: char| c.is_ascii_alphabetic()) && len > scheme + 3).then_some(len)
}

/// `/a/b`, `./a`, `~/a`, `C:\a`, and `a/b.c`: what has blanks in it is not seen as one.
fn path(text: &str) -> Option<usize> {
    let len = unbroken(text);
    let part = &text[..len];
    let inner = |part: &str| part.contains(|c: char| c.is_alphanumeric());
    let rooted = ["/", "./", "../", "~/"].iter().any(|root| part.strip_prefix(root).is_some_and(inner));
    let drive = part.len() > 3 && part.as_bytes()[0].is_ascii_alphabetic() && part[1..].starts_with(":\\");
    let slashes = part.matches('/').count();
    let relative = part.starts_with(|c: char| is_of_word(c) || c == '.')
        && (slashes > 1 || (slashes == 1 && part.rsplit('/').next().is_some_and(|last| last.contains('.'))));
    (rooted || drive || relative).then_some(len)
}

/// A date, a time of day, or both.
fn time(text: &str) -> Option<usize> {
    let date = shape(text, "dddd-dd-dd").or_else(|| shape(text, "dddd/dd/dd"));
    let len = match date {
        Some(len) => {
            let gap = text[len..].starts_with(['T', 't', ' ']);
            let clock = gap.then(|| shape(&text[len + 1..], "dd:dd")).flatten();
            clock.map_or(len, |clock| len + 1 + clock)
        }
        None => shape(text, "dd:dd:dd")?,
    };
    // Seconds, a fraction, an offset.
    let more = text[len..]
        .find(|c: char| !(c.is_ascii_digit() || matches!(c, ':' | '.' | ',' | 'Z' | '+')))
        .unwrap_or(text.len() - len);
    let end = text[..len + more].trim_end_matches(['.', ':', ',', '+']).len();
    let offset = shape(&text[end..], "-dd:dd").unwrap_or(0);
    let end = end + offset;
    (!text[end..].starts_with(is_of_word)).then_some(end)
}

fn shape(text: &str, shape: &str) -> Option<usize> {
    let mut bytes = text.bytes();
    let fits = shape.bytes().all(|wanted| {
        bytes.next().is_some_and(|byte| if wanted == b'd' { byte.is_ascii_digit() } else { byte == wanted })
    });
    fits.then_some(shape.len())
}

/// An address of version 4, with a port.
fn address(text: &str) -> Option<usize> {
    let len = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let host = text[..len].trim_end_matches('.');
    let parts: Vec<_> = host.split('.').collect();
    let is_address = parts.len() == 4 && parts.iter().all(|part| part.parse::<u8>().is_ok());
    if !is_address || text[host.len()..].starts_with(is_of_word) {
        return None;
    }
    let port = text[host.len()..].strip_prefix(':').map_or(0, |port| {
        let digits = port.find(|c: char| !c.is_ascii_digit()).unwrap_or(port.len());
        if digits > 0 { digits + 1 } else { 0 }
    });
    Some(host.len() + port)
}

/// The digits behind a point or a comma within a number.
fn fraction(text: &str) -> usize {
    let mut len = 0;
    while let Some(rest) = text[len..].strip_prefix(['.', ',']) {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if digits == 0 {
            break;
        }
        len += 1 + digits;
    }
    len
}

/// UUIDs, hexadecimal and other ids that nobody would read as a word.
fn is_id(word: &str) -> bool {
    let digits = word.bytes().filter(u8::is_ascii_digit).count();
    if digits == 0 {
        return false;
    }
    if let Some(hex) = word.strip_prefix("0x") {
        return !hex.is_empty() && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
    }
    let letters = word.chars().filter(|c| c.is_alphabetic()).count();
    if letters == 0 {
        // Digits with dashes: a UUID without letters, a telephone number.
        return word.contains('-') && digits >= HEX_DIGITS_MIN;
    }
    let core: String = word.chars().filter(|c| !matches!(c, '-' | '_')).collect();
    let is_hex = core.len() >= HEX_DIGITS_MIN && core.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex || word.split(['-', '_']).any(is_mixed)
}

/// Whether letters and digits take turns often.
fn is_mixed(part: &str) -> bool {
    let kinds: Vec<bool> = part.chars().map(|c| c.is_ascii_digit()).collect();
    let changes = kinds.windows(2).filter(|pair| pair[0] != pair[1]).count();
    let hex = part.len() >= HEX_DIGITS_MIN && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    (kinds.len() >= ID_CHARS_MIN && changes >= ID_CHANGES_MIN) || (hex && changes > 0)
}

/// The word with its numbers replaced: `attempt-3` and `30000ms`. A number that directly follows letters is a part of
/// the name: `sha256`, `E11000`, `v2`.
fn without_numbers(word: &str) -> String {
    let mut text = String::with_capacity(word.len());
    let mut rest = word;
    while let Some(c) = rest.chars().next() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        if digits == 0 {
            text.push(c);
            rest = &rest[c.len_utf8()..];
            continue;
        }
        let named = text.chars().next_back().is_some_and(char::is_alphabetic);
        text.push_str(if named { &rest[..digits] } else { "<n>" });
        rest = &rest[digits..];
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_varies_is_replaced() {
        for (message, expected) in [
            ("", ""),
            ("nothing varies", "nothing varies"),
            ("  two\n lines  ", "two lines"),
            ("took 31 of 1,024.5 rows", "took <n> of <n> rows"),
            ("Timeout of 30000ms exceeded", "Timeout of <n>ms exceeded"),
            ("status code 404", "status code 404"),
            ("Request failed with status code 503", "Request failed with status code 503"),
            ("HTTP 502 Bad Gateway", "HTTP 502 Bad Gateway"),
            ("exit status 3", "exit status 3"),
            ("exit code: 137", "exit code: 137"),
            ("[Errno 13] Permission denied: '/srv/a'", "[Errno 13] Permission denied: <value>"),
            ("status 1234567", "status <n>"),
            ("{\"statusCode\": 429, \"id\": \"x7\"}", "{\"statusCode\": 429, \"id\": <value>}"),
            ("order 7f9c24e8-3b12-4f0a-9a57-b1c2d3e4f5a6 is gone", "order <id> is gone"),
            ("blob 9f86d081884c7d65 is missing", "blob <id> is missing"),
            ("address 0x7ffe12 of stack", "address <id> of stack"),
            ("request req_8Kx2pQ91vT failed", "request <id> failed"),
            ("job-0193b7c2a4f17000a0b1c2d3e4f50617_fetch timed out", "<id> timed out"),
            ("parcel 12-0345-678 not found", "parcel <id> not found"),
            ("attempt-3 of 4", "attempt-<n> of <n>"),
            ("E11000 duplicate key", "E11000 duplicate key"),
            ("sha256 differs", "sha256 differs"),
            ("invalid value \"abc\": must be a number", "invalid value <value>: must be a number"),
            ("KeyError: 'parcel_id'", "KeyError: <value>"),
            ("can't open, doesn't exist", "can't open, doesn't exist"),
            ("the column `zoning` is unknown", "the column <value> is unknown"),
            ("open /srv/data/in.csv: no such file", "open <path>: no such file"),
            ("open C:\\data\\in.csv failed", "open <path> failed"),
            ("at src/main.rs:12:5, and/or there", "at <path>, and/or there"),
            ("input/output error", "input/output error"),
            ("GET https://a.example/b?c=1: refused", "GET <url>: refused"),
            ("connect ECONNREFUSED 127.0.0.1:8080", "connect ECONNREFUSED <address>"),
            ("2026-11-15T20:01:02.345Z down", "<time> down"),
            ("since 2026-11-15 20:01 and 20:01:02", "since <time> and <time>"),
            (
                "TypeError: x is not a function\n    at run (/srv/a.js:3:7)\n    at main",
                "TypeError: x is not a function",
            ),
            (
                "Traceback (most recent call last):\n  File \"/srv/a.py\", line 3, in f\n    g()\nValueError: bad row 7\n",
                "ValueError: bad row <n>",
            ),
            ("at first it worked", "at first it worked"),
        ] {
            assert_eq!(normalise(message), expected, "{message}");
        }
        assert_eq!(normalise(&"é ".repeat(9_000)).chars().count(), NORMAL_CHARS_MAX - 1);
        assert!(!normalise(&"x 7 ".repeat(900)).ends_with('<'));
    }

    /// Words that mean something, so that texts made of other words are other errors.
    fn words() -> impl Strategy<Value = Vec<&'static str>> {
        let word = prop::sample::select(vec![
            "parcel",
            "missing",
            "timeout",
            "refused",
            "denied",
            "schema",
            "disk",
            "full",
            "column",
            "unknown",
            "crashed",
            "selector",
            "upload",
            "token",
            "ECONNRESET",
            "TypeError",
        ]);
        prop::collection::vec(word, 1..8)
    }

    #[derive(Debug, Clone, Copy)]
    enum Filler {
        Number,
        Uuid,
        Hex,
        Path,
        Url,
        Time,
        Quoted,
    }

    fn fill(filler: Filler, seed: u64) -> String {
        let wide = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        match filler {
            Filler::Number => (seed % 1_000_000 + 1_000).to_string(),
            Filler::Uuid => format!(
                "{:08x}-{:04x}-4{:03x}-8{:03x}-{:012x}",
                seed & 0xffff_ffff,
                wide & 0xffff,
                wide & 0xfff,
                seed & 0xfff,
                wide >> 16
            ),
            Filler::Hex => format!("a1{wide:016x}"),
            Filler::Path => format!("/srv/data-{seed}/in{wide}.csv"),
            Filler::Url => format!("https://host{seed}.example/a?b={wide}"),
            Filler::Time => format!("2026-{:02}-{:02}T{:02}:00:00Z", seed % 12 + 1, seed % 28 + 1, seed % 24),
            Filler::Quoted => format!("\"row {seed} of {wide}\""),
        }
    }

    fn message(words: &[&str], fillers: &[Filler], seed: u64) -> String {
        let mut text = String::new();
        for (at, word) in words.iter().enumerate() {
            text.push_str(word);
            if let Some(filler) = fillers.get(at) {
                text.push(' ');
                text.push_str(&fill(*filler, seed.wrapping_add(at as u64)));
            }
            text.push(' ');
        }
        text
    }

    fn fillers() -> impl Strategy<Value = Vec<Filler>> {
        use Filler::{Hex, Number, Path, Quoted, Time, Url, Uuid};
        prop::collection::vec(prop::sample::select(vec![Number, Uuid, Hex, Path, Url, Time, Quoted]), 0..8)
    }

    proptest! {
        #[test]
        fn doing_it_twice_changes_nothing(text in "[ -~\\n\\té]{0,200}") {
            let once = normalise(&text);
            prop_assert_eq!(normalise(&once), once);
        }

        #[test]
        fn doing_it_twice_to_likely_texts_changes_nothing(words in words(), fillers in fillers(), seed: u64, copies in 1usize..40) {
            let once = normalise(&message(&words, &fillers, seed).repeat(copies));
            prop_assert_eq!(normalise(&once), once.clone());
            prop_assert!(once.chars().count() <= NORMAL_CHARS_MAX);
        }

        #[test]
        fn other_values_are_the_same_error(words in words(), fillers in fillers(), one: u64, other: u64) {
            prop_assert_eq!(normalise(&message(&words, &fillers, one)), normalise(&message(&words, &fillers, other)));
        }

        #[test]
        fn other_words_are_other_errors(one in words(), other in words(), fillers in fillers(), seed: u64) {
            prop_assume!(one != other);
            prop_assert_ne!(normalise(&message(&one, &fillers, seed)), normalise(&message(&other, &fillers, seed)));
        }
    }
}
