//! The table of error signs: what identifies a failure, and which category it then has.
//!
//! One table serves workers, agents and scripts alike. It is data; the few functions below only look things up in it.

use crate::work::error_class::ErrorCategory::{
    self, Auth, Network, NotFound, Parse, Programming, RateLimit, ServerError, Timeout, Validation,
};

/// How much of the end of a text is searched, in bytes.
pub const ERROR_TEXT_MAX: usize = 8 * 1024;

/// What identifies a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sign {
    /// An HTTP status from the first to the last.
    Status(u16, u16),
    /// An error's name or code, alone or as a whole word in a text.
    Word(&'static str),
    /// The same, on a line that goes on with the other text.
    WordWith(&'static str, &'static str),
    /// A text, in capitals or not, at the beginning of a word.
    Phrase(&'static str),
    /// An exit status from the first to the last.
    Exit(i32, i32),
    /// A signal that the worker did not send, such as that of the kernel when memory runs out.
    Signal,
}

use Sign::{Exit, Phrase, Signal, Status, Word, WordWith};

/// Where two rows fit, the upper one holds.
const TABLE: &[(Sign, ErrorCategory)] = &[
    (Status(401, 401), Auth),
    (Status(403, 403), Auth),
    (Status(404, 404), NotFound),
    (Status(408, 408), Timeout),
    (Status(429, 429), RateLimit),
    (Status(400, 499), Validation),
    (Status(500, u16::MAX), ServerError),
    // A program that is missing or may not be run will not be there the next time.
    (Exit(126, 127), NotFound),
    // A panic of a Rust program.
    (Exit(101, 101), Programming),
    (Exit(2, i32::MAX), ServerError),
    (Exit(i32::MIN, -1), ServerError),
    (Signal, ServerError),
    (Word("AuthenticationError"), Auth),
    (Word("PermissionDeniedError"), Auth),
    (Word("PermissionError"), Auth),
    (Word("NoCredentialsError"), Auth),
    (Word("UnauthorizedError"), Auth),
    (Word("ForbiddenError"), Auth),
    (Word("authentication_error"), Auth),
    (Word("permission_error"), Auth),
    (Word("AccessDenied"), Auth),
    (Word("AccessDeniedException"), Auth),
    (Word("ExpiredTokenException"), Auth),
    (Word("UnrecognizedClientException"), Auth),
    (Word("InvalidClientTokenId"), Auth),
    (Word("EACCES"), Auth),
    (Word("EPERM"), Auth),
    (Phrase("unauthorized"), Auth),
    (Phrase("forbidden"), Auth),
    (Phrase("invalid api key"), Auth),
    (Phrase("invalid x-api-key"), Auth),
    (Phrase("authentication failed"), Auth),
    (Phrase("permission denied"), Auth),
    (Word("ValidationError"), Validation),
    (Word("ValidationException"), Validation),
    (Word("BadRequestError"), Validation),
    (Word("UnprocessableEntityError"), Validation),
    (Word("ZodError"), Validation),
    (Word("invalid_request_error"), Validation),
    (Phrase("invalid requestid"), Validation),
    (Phrase("validation failed"), Validation),
    (Phrase("validation error"), Validation),
    (Phrase("bad request"), Validation),
    (WordWith("SyntaxError", "JSON"), Parse),
    (Word("JSONDecodeError"), Parse),
    (Word("UnicodeDecodeError"), Parse),
    (Word("ParseError"), Parse),
    (Word("ParserError"), Parse),
    (Word("YAMLError"), Parse),
    (Word("TOMLDecodeError"), Parse),
    (Word("ExpatError"), Parse),
    (Phrase("json parse error"), Parse),
    (Phrase("json.parse"), Parse),
    (Phrase("is not valid json"), Parse),
    (Phrase("invalid json"), Parse),
    (Phrase("unexpected end of json input"), Parse),
    (Word("ENOENT"), NotFound),
    (Word("MODULE_NOT_FOUND"), NotFound),
    (Word("ERR_MODULE_NOT_FOUND"), NotFound),
    (Word("ModuleNotFoundError"), NotFound),
    (Word("FileNotFoundError"), NotFound),
    (Word("NotADirectoryError"), NotFound),
    (Word("IsADirectoryError"), NotFound),
    (Word("ImportError"), NotFound),
    (Word("NotFoundError"), NotFound),
    (Word("not_found_error"), NotFound),
    (Word("ResourceNotFoundException"), NotFound),
    (Word("NoSuchKey"), NotFound),
    (Word("NoSuchBucket"), NotFound),
    (Phrase("cannot find module"), NotFound),
    (Phrase("cannot find package"), NotFound),
    (Phrase("no module named"), NotFound),
    (Phrase("no such file or directory"), NotFound),
    (Phrase("command not found"), NotFound),
    (Word("TIMEOUT"), Timeout),
    (Word("AbortError"), Timeout),
    (Word("TimeoutError"), Timeout),
    (Word("APIConnectionTimeoutError"), Timeout),
    (Word("timeout_error"), Timeout),
    (Word("ReadTimeout"), Timeout),
    (Word("ReadTimeoutError"), Timeout),
    (Word("WriteTimeout"), Timeout),
    (Word("PoolTimeout"), Timeout),
    (Word("TimeoutExpired"), Timeout),
    (Word("CancelledError"), Timeout),
    (Word("RequestTimeout"), Timeout),
    (Word("UND_ERR_HEADERS_TIMEOUT"), Timeout),
    (Word("UND_ERR_BODY_TIMEOUT"), Timeout),
    (Phrase("timeout"), Timeout),
    (Phrase("timed out"), Timeout),
    (Phrase("deadline exceeded"), Timeout),
    // A time-out of the connection itself is the network's.
    (Word("ETIMEDOUT"), Network),
    (Word("ESOCKETTIMEDOUT"), Network),
    (Word("UND_ERR_CONNECT_TIMEOUT"), Network),
    (Phrase("connection timed out"), Network),
    (Word("ECONNREFUSED"), Network),
    (Word("ENOTFOUND"), Network),
    (Word("ECONNRESET"), Network),
    (Word("ECONNABORTED"), Network),
    (Word("EPIPE"), Network),
    (Word("EAI_AGAIN"), Network),
    (Word("EHOSTUNREACH"), Network),
    (Word("ENETUNREACH"), Network),
    (Word("ENETDOWN"), Network),
    (Word("UND_ERR_SOCKET"), Network),
    (Word("APIConnectionError"), Network),
    (Word("FetchError"), Network),
    (Word("ConnectionError"), Network),
    (Word("ConnectionResetError"), Network),
    (Word("ConnectionRefusedError"), Network),
    (Word("ConnectionAbortedError"), Network),
    (Word("BrokenPipeError"), Network),
    (Word("ConnectTimeout"), Network),
    (Word("ConnectTimeoutError"), Network),
    (Word("ConnectError"), Network),
    (Word("NewConnectionError"), Network),
    (Word("MaxRetryError"), Network),
    (Word("ChunkedEncodingError"), Network),
    (Word("RemoteDisconnected"), Network),
    (Word("IncompleteRead"), Network),
    (Word("ProtocolError"), Network),
    (Word("EndpointConnectionError"), Network),
    (Word("URLError"), Network),
    (Word("gaierror"), Network),
    (WordWith("TypeError", "fetch failed"), Network),
    (Phrase("fetch failed"), Network),
    (Phrase("connection refused"), Network),
    (Phrase("connection reset"), Network),
    (Phrase("socket hang up"), Network),
    (Phrase("could not resolve host"), Network),
    (Phrase("name or service not known"), Network),
    (Phrase("temporary failure in name resolution"), Network),
    (Phrase("network is unreachable"), Network),
    (Phrase("no route to host"), Network),
    (Word("RateLimitError"), RateLimit),
    (Word("rate_limit_error"), RateLimit),
    (Word("Throttling"), RateLimit),
    (Word("ThrottlingException"), RateLimit),
    (Word("TooManyRequestsException"), RateLimit),
    (Word("ProvisionedThroughputExceededException"), RateLimit),
    (Word("RequestLimitExceeded"), RateLimit),
    (Word("SlowDown"), RateLimit),
    (Phrase("rate limit"), RateLimit),
    (Phrase("rate-limit"), RateLimit),
    (Phrase("too many requests"), RateLimit),
    (Word("InternalServerError"), ServerError),
    (Word("InternalServerException"), ServerError),
    (Word("InternalFailure"), ServerError),
    (Word("ServiceUnavailable"), ServerError),
    (Word("ServiceUnavailableException"), ServerError),
    (Word("OverloadedError"), ServerError),
    (Word("overloaded_error"), ServerError),
    (Word("api_error"), ServerError),
    // The machine has run short of something; another one, or another time, may do.
    (Word("ENOSPC"), ServerError),
    (Word("ENOMEM"), ServerError),
    (Word("EMFILE"), ServerError),
    (Word("MemoryError"), ServerError),
    (Word("BlockingIOError"), ServerError),
    (Phrase("internal server error"), ServerError),
    (Phrase("service unavailable"), ServerError),
    (Phrase("bad gateway"), ServerError),
    (Phrase("gateway timeout"), ServerError),
    (Phrase("out of memory"), ServerError),
    (Phrase("cannot allocate memory"), ServerError),
    (Word("TypeError"), Programming),
    (Word("ReferenceError"), Programming),
    (Word("RangeError"), Programming),
    (Word("SyntaxError"), Programming),
    (Word("IndentationError"), Programming),
    (Word("TabError"), Programming),
    (Word("NameError"), Programming),
    (Word("UnboundLocalError"), Programming),
    (Word("AttributeError"), Programming),
    (Word("KeyError"), Programming),
    (Word("IndexError"), Programming),
    (Word("LookupError"), Programming),
    (Word("ValueError"), Programming),
    (Word("AssertionError"), Programming),
    (Word("ZeroDivisionError"), Programming),
    (Word("OverflowError"), Programming),
    (Word("ArithmeticError"), Programming),
    (Word("RecursionError"), Programming),
    (Word("NotImplementedError"), Programming),
    (Word("UnicodeEncodeError"), Programming),
    (Word("StopIteration"), Programming),
    (Phrase("panicked at"), Programming),
];

/// What a Python traceback begins with.
const TRACEBACK: &str = "Traceback (most recent call last):";

/// The category of an HTTP status; none for those that are no errors.
pub(crate) fn of_status(status: u16) -> Option<ErrorCategory> {
    find(|sign| matches!(sign, Status(first, last) if (first..=last).contains(&status)))
}

/// The category of an error by its name or code. Some names mean different things with different messages.
pub(crate) fn of_word(word: &str, message: &str) -> Option<ErrorCategory> {
    let with = |sign| matches!(sign, WordWith(name, text) if name == word && message.contains(text));
    find(with).or_else(|| find(|sign| matches!(sign, Word(name) if name == word)))
}

/// The category of an exit status; none for 0 and 1, which do not tell by themselves.
pub(crate) fn of_exit_code(code: i32) -> Option<ErrorCategory> {
    find(|sign| matches!(sign, Exit(first, last) if (first..=last).contains(&code)))
}

/// The category of a death by a signal that the worker did not send.
pub(crate) fn of_signal() -> Option<ErrorCategory> {
    find(|sign| sign == Signal)
}

fn find(fits: impl Fn(Sign) -> bool) -> Option<ErrorCategory> {
    TABLE.iter().find(|(sign, _)| fits(*sign)).map(|(_, category)| *category)
}

/// The category of a failure by what it printed; the exception at the end of a Python traceback identifies it.
pub(crate) fn of_printed(text: &str) -> Option<ErrorCategory> {
    let text = tail(text);
    let Some(exception) = exception_of(text) else { return of_text(text) };
    let line = exception.lines().next().unwrap_or_default();
    let (path, message) = line.split_once(':').unwrap_or((line, ""));
    let name = path.trim_end().rsplit('.').next().unwrap_or_default();
    // An exception that the table knows counts before its message, which is data: a missing key `'timeout'` is no
    // time-out. The lines of the program that lead to it prove nothing at all.
    of_word(name, message).or_else(|| of_text(exception))
}

/// The end of the last traceback in a text, from its exception on.
fn exception_of(text: &str) -> Option<&str> {
    let (_, after) = text.rsplit_once(TRACEBACK)?;
    // The frames are indented; the exception is the first line that is not.
    let mut lines = after.split_inclusive('\n').skip(1);
    let start = lines.find(|line| line.starts_with(|first: char| first.is_alphabetic()))?;
    let offset = start.as_ptr().addr() - text.as_ptr().addr();
    text.get(offset..)
}

/// The category of a failure by what it printed.
///
/// The last sign in the text counts: earlier ones are warnings, tries that were repeated, or what another error wraps.
/// Of two that end together the longer one counts.
pub(crate) fn of_text(text: &str) -> Option<ErrorCategory> {
    let text = tail(text);
    let lower = text.to_ascii_lowercase();
    let by_table = TABLE.iter().filter_map(|(sign, category)| {
        let (start, end) = match sign {
            Word(word) => last_word(text, word)?,
            WordWith(word, rest) => {
                let (start, after) = last_word(text, word)?;
                let line = text[after..].lines().next().unwrap_or_default();
                (start, after + line.find(rest)? + rest.len())
            }
            Phrase(phrase) => last_phrase(&lower, phrase)?,
            Status(..) | Exit(..) | Signal => return None,
        };
        Some(((end, end - start), *category))
    });
    let by_status = statuses(text, &lower).filter_map(|(end, status)| Some(((end, 3), of_status(status)?)));
    let mut last: Option<((usize, usize), ErrorCategory)> = None;
    for (place, category) in by_table.chain(by_status) {
        if last.is_none_or(|(best, _)| place > best) {
            last = Some((place, category));
        }
    }
    last.map(|(_, category)| category)
}

/// The end of a text, as much of it as is searched.
fn tail(text: &str) -> &str {
    let mut start = text.len().saturating_sub(ERROR_TEXT_MAX);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    &text[start..]
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn begins_word(text: &str, start: usize) -> bool {
    start == 0 || !is_word(text.as_bytes()[start - 1])
}

fn ends_word(text: &str, end: usize) -> bool {
    text.as_bytes().get(end).is_none_or(|byte| !is_word(*byte))
}

fn last_word(text: &str, word: &str) -> Option<(usize, usize)> {
    let places = text.rmatch_indices(word).map(|(start, _)| (start, start + word.len()));
    places.into_iter().find(|(start, end)| begins_word(text, *start) && ends_word(text, *end))
}

fn last_phrase(lower: &str, phrase: &str) -> Option<(usize, usize)> {
    let mut places = lower.rmatch_indices(phrase).map(|(start, _)| (start, start + phrase.len()));
    places.find(|(start, _)| begins_word(lower, *start))
}

/// Words before a number that make it an HTTP status; so does any word that ends in `error`.
const STATUS_WORDS: [&str; 10] = [
    "status",
    "statuscode",
    "status_code",
    "code",
    "errorcode",
    "error_code",
    "http",
    "http/1.1",
    "http/2",
    "response",
];

/// What follows a status on the first line of an answer.
const REASONS: [&str; 12] = [
    "bad request",
    "unauthorized",
    "forbidden",
    "not found",
    "request timeout",
    "conflict",
    "unprocessable",
    "too many requests",
    "internal server error",
    "bad gateway",
    "service unavailable",
    "gateway timeout",
];

/// The numbers in a text that are HTTP statuses by what stands around them, each with the place where it ends.
///
/// A bare number is none: it may as well be a count, a line or a port.
fn statuses<'a>(text: &'a str, lower: &'a str) -> impl Iterator<Item = (usize, u16)> {
    let bytes = text.as_bytes();
    (0..bytes.len().saturating_sub(2)).filter_map(move |start| {
        let end = start + 3;
        let digits = bytes[start..end].iter().all(u8::is_ascii_digit);
        if !digits
            || !matches!(bytes[start], b'4' | b'5')
            || !begins_word(text, start)
            || !ends_word(text, end)
        {
            return None;
        }
        let line = lower[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let before = lower[line..start].trim_end_matches([' ', ':', '=', '"', '\'', '(', '[']);
        let word = before.rsplit([' ', '\t', '"', '\'', '(', '[', '{', ',']).next().unwrap_or_default();
        let named = STATUS_WORDS.contains(&word) || word.ends_with("error");
        let leads = start == line && matches!(bytes.get(end), None | Some(b' ' | b':' | b'\n' | b'\r'));
        let explained = REASONS.iter().any(|reason| lower[end..].trim_start().starts_with(reason));
        (named || leads || explained).then(|| (end, text[start..end].parse().unwrap_or_default()))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_row_holds() {
        for (sign, category) in TABLE {
            let expected = Some(*category);
            match *sign {
                Status(first, last) => {
                    let own = (first..=last).filter(|status| *status < 600);
                    assert!(own.into_iter().any(|status| of_status(status) == expected), "{sign:?}");
                    assert_eq!(
                        of_text(&format!("status {last}")),
                        expected.filter(|_| last < 500),
                        "{sign:?}"
                    );
                }
                Word(word) => {
                    assert_eq!(of_word(word, ""), expected, "{sign:?}");
                    assert_eq!(of_text(&format!("x: {word}: y")), expected, "{sign:?}");
                    assert_eq!(of_text(&format!("x{word}")), None, "{sign:?}");
                }
                WordWith(word, rest) => {
                    assert_eq!(of_word(word, &format!("a {rest} b")), expected, "{sign:?}");
                    assert_eq!(of_text(&format!("{word}: a {rest} b\n")), expected, "{sign:?}");
                }
                Phrase(phrase) => {
                    assert_eq!(phrase, phrase.to_ascii_lowercase(), "phrases are compared in small letters");
                    assert_eq!(of_text(&format!("x: {} y", phrase.to_uppercase())), expected, "{sign:?}");
                }
                Exit(first, last) => {
                    assert_eq!(of_exit_code(first), expected, "{sign:?}");
                    assert_eq!(of_exit_code(last), expected, "{sign:?}");
                }
                Signal => assert_eq!(of_signal(), expected),
            }
        }
        assert_eq!([0, 1].map(of_exit_code), [None, None]);
    }

    #[test]
    fn only_the_end_of_a_long_text_is_searched() {
        let noise = "ä".repeat(ERROR_TEXT_MAX / 2);
        assert_eq!(of_text(&format!("ENOENT {noise}")), None);
        assert_eq!(of_text(&format!("{noise} ENOENT")), Some(NotFound));
    }

    proptest! {
        #[test]
        fn any_text_can_be_searched(text in ".{0,40}", more in "[a-zäE4015 :\n]{0,40}") {
            of_text(&format!("{text} 401 {more}"));
            of_text(&more);
        }
    }
}
