//! Error classes: a closed set, one table, the same for every layer.
//!
//! What is known of a failure comes in as it was reported; the signs are in `error_table`.

use serde::{Deserialize, Serialize};

use crate::work::error_table::{of_exit_code, of_printed, of_signal, of_status, of_text, of_word};

/// Why an attempt failed. The first four and `unknown` are tried again.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum ErrorCategory {
    Timeout,
    Network,
    RateLimit,
    ServerError,
    Auth,
    Validation,
    Parse,
    NotFound,
    Programming,
    Unknown,
    Cancelled,
}

impl ErrorCategory {
    pub const ALL: [Self; 11] = [
        Self::Timeout,
        Self::Network,
        Self::RateLimit,
        Self::ServerError,
        Self::Auth,
        Self::Validation,
        Self::Parse,
        Self::NotFound,
        Self::Programming,
        Self::Unknown,
        Self::Cancelled,
    ];

    /// Whether another attempt may help.
    pub fn is_retryable(self) -> bool {
        matches!(self, Self::Timeout | Self::Network | Self::RateLimit | Self::ServerError | Self::Unknown)
    }

    /// The category of this name, if it is one.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|category| category.as_str() == name)
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Network => "network",
            Self::RateLimit => "rate-limit",
            Self::ServerError => "server-error",
            Self::Auth => "auth",
            Self::Validation => "validation",
            Self::Parse => "parse",
            Self::NotFound => "not-found",
            Self::Programming => "programming",
            Self::Unknown => "unknown",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What is known of a failure. All of it is optional.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Failure<'a> {
    /// The HTTP status that an error record names.
    pub status: Option<u16>,
    /// The code that an error record names, such as `ECONNRESET`.
    pub code: Option<&'a str>,
    /// The name of the error in an error record, such as `AbortError`.
    pub name: Option<&'a str>,
    /// The message of an error record.
    pub message: Option<&'a str>,
    /// How the process ended, if there was one.
    pub exit: Option<Exit>,
    /// What the process printed as errors, or at least the end of it.
    pub stderr: &'a str,
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Exit {
    Code(i32),
    /// Killed by this signal, which the worker did not send.
    Signal(i32),
}

impl Failure<'_> {
    /// The category of this failure.
    ///
    /// What the failing side said of itself counts first. Then the way the process ended, unless it is the exit status
    /// 1, which every kind of error shares: then what it printed.
    pub fn category(&self) -> ErrorCategory {
        self.by_record()
            .or_else(|| self.by_exit())
            .or_else(|| of_printed(self.stderr))
            .unwrap_or(ErrorCategory::Unknown)
    }

    fn by_record(&self) -> Option<ErrorCategory> {
        let message = self.message.unwrap_or_default();
        // Some libraries put the HTTP status into the code.
        let status = self.status.or_else(|| self.code?.parse().ok());
        status
            .and_then(of_status)
            .or_else(|| of_word(self.code?, message))
            .or_else(|| of_word(self.name?, message))
            .or_else(|| of_text(message))
    }

    fn by_exit(&self) -> Option<ErrorCategory> {
        match self.exit? {
            Exit::Code(code) => of_exit_code(code),
            Exit::Signal(_) => of_signal(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(status: u16) -> Failure<'static> {
        Failure { status: Some(status), ..Failure::default() }
    }

    fn named(name: &'static str, message: &'static str) -> Failure<'static> {
        Failure { name: Some(name), message: Some(message), ..Failure::default() }
    }

    fn code(code: &'static str) -> Failure<'static> {
        Failure { code: Some(code), exit: Some(Exit::Code(1)), ..Failure::default() }
    }

    fn exit(exit: Exit, stderr: &'static str) -> Failure<'static> {
        Failure { exit: Some(exit), stderr, ..Failure::default() }
    }

    fn printed(stderr: &'static str) -> Failure<'static> {
        exit(Exit::Code(1), stderr)
    }

    #[test]
    fn failures_have_the_documented_categories() {
        use ErrorCategory::{
            Auth, Network, NotFound, Parse, Programming, RateLimit, ServerError, Timeout, Unknown, Validation,
        };
        for (failure, expected) in [
            (status(400), Validation),
            (status(401), Auth),
            (status(402), Validation),
            (status(403), Auth),
            (status(404), NotFound),
            (status(408), Timeout),
            (status(422), Validation),
            (status(429), RateLimit),
            (status(500), ServerError),
            (status(503), ServerError),
            (status(529), ServerError),
            (status(200), Unknown),
            (code("ECONNREFUSED"), Network),
            (code("ECONNRESET"), Network),
            (code("ENOTFOUND"), Network),
            (code("ETIMEDOUT"), Network),
            (code("TIMEOUT"), Timeout),
            (code("ENOENT"), NotFound),
            (code("MODULE_NOT_FOUND"), NotFound),
            (code("429"), RateLimit),
            (code("E_SOMETHING"), Unknown),
            (named("AbortError", "This operation was aborted"), Timeout),
            (named("AuthenticationError", "no"), Auth),
            (named("ValidationError", "no"), Validation),
            (named("RateLimitError", "no"), RateLimit),
            (named("TypeError", "x is not a function"), Programming),
            (named("TypeError", "fetch failed"), Network),
            (named("ReferenceError", "x is not defined"), Programming),
            (named("RangeError", "Invalid array length"), Programming),
            (named("SyntaxError", "Unexpected identifier 'foo'"), Programming),
            (named("SyntaxError", "Unexpected token } in JSON at position 5"), Parse),
            (named("Error", "connect ECONNREFUSED 127.0.0.1:80"), Network),
            (named("Error", "Invalid API key"), Auth),
            (named("Error", "invalid requestId"), Validation),
            (named("Error", "who knows"), Unknown),
            (printed(""), Unknown),
            (printed("something went wrong"), Unknown),
            (exit(Exit::Code(2), ""), ServerError),
            (exit(Exit::Code(101), "thread main panicked"), Programming),
            (exit(Exit::Code(126), ""), NotFound),
            (exit(Exit::Code(127), "sh: 1: scrape: not found"), NotFound),
            (exit(Exit::Code(137), ""), ServerError),
            (exit(Exit::Code(-1), ""), ServerError),
            (exit(Exit::Signal(9), "TypeError: late"), ServerError),
            (exit(Exit::Signal(11), ""), ServerError),
            // What the failing side says of itself counts before the way it ended.
            (Failure { exit: Some(Exit::Code(3)), ..status(401) }, Auth),
            (Failure { exit: Some(Exit::Signal(9)), ..code("ECONNRESET") }, Network),
            (Failure { stderr: "TypeError: x", ..code("E_SOMETHING") }, Programming),
        ] {
            assert_eq!(failure.category(), expected, "{failure:?}");
        }
    }

    #[test]
    fn text_is_understood_by_its_last_sign() {
        use ErrorCategory::{
            Auth, Network, NotFound, Parse, Programming, RateLimit, ServerError, Timeout, Unknown, Validation,
        };
        for (text, expected) in [
            ("Error: connect ETIMEDOUT 10.0.0.1:443", Network),
            ("curl: (28) Connection timed out after 1000 ms", Network),
            ("Error: step timed out", Timeout),
            ("Timeout of 2000ms exceeded", Timeout),
            ("Error: Request failed with status code 401", Auth),
            ("HTTP/1.1 503 Service Unavailable", ServerError),
            ("{\"statusCode\": 429}", RateLimit),
            ("401 {\"type\":\"error\"}", Auth),
            ("request was answered with (404 Not Found)", NotFound),
            ("BadRequestError: 400 model: unknown", Validation),
            ("Error: 500", ServerError),
            ("GET /x -> 403 Forbidden", Auth),
            ("processed 404 rows, 500 left", Unknown),
            ("at run (/srv/app/main.js:401:17)", Unknown),
            ("took 503ms", Unknown),
            ("SyntaxError: Unexpected end of JSON input\n    at JSON.parse (<anonymous>)", Parse),
            ("SyntaxError: Unexpected identifier 'foo'\n    at wrapSafe", Programming),
            ("json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)", Parse),
            ("Error: Cannot find module './x'\n  code: 'MODULE_NOT_FOUND'", NotFound),
            ("bash: line 1: scrape: command not found", NotFound),
            ("MyTypeErrorHandler gave up", Unknown),
            (
                "TypeError: fetch failed\n    at node:internal\n  [cause]: Error: getaddrinfo ENOTFOUND a.b",
                Network,
            ),
            ("TypeError: fetch failed", Network),
            ("TypeError: Cannot read properties of undefined\n\nNode.js v22.1.0", Programming),
            // The first ones were survived.
            (
                "warning: ECONNRESET, trying again\nwarning: 429 Too Many Requests\nAuthenticationError: no",
                Auth,
            ),
            ("TypeError was caught\nError: connect ECONNREFUSED", Network),
        ] {
            assert_eq!(printed(text).category(), expected, "{text}");
        }
    }

    #[test]
    fn a_python_traceback_is_understood_by_its_exception() {
        use ErrorCategory::{
            Auth, Network, NotFound, Parse, Programming, ServerError, Timeout, Unknown, Validation,
        };
        for (exception, expected) in [
            ("KeyError: 'timeout'", Programming),
            ("NameError: name 'ECONNRESET' is not defined", Programming),
            ("AttributeError: 'NoneType' object has no attribute 'get'", Programming),
            ("ZeroDivisionError: division by zero", Programming),
            ("ValueError: 401 is no port", Programming),
            ("AssertionError", Programming),
            ("json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)", Parse),
            ("UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff in position 0", Parse),
            ("ModuleNotFoundError: No module named 'requests'", NotFound),
            ("FileNotFoundError: [Errno 2] No such file or directory: 'timeout.txt'", NotFound),
            ("PermissionError: [Errno 13] Permission denied: 'x'", Auth),
            ("requests.exceptions.ConnectionError: HTTPSConnectionPool(host='a', port=443)", Network),
            ("requests.exceptions.ReadTimeout: HTTPSConnectionPool(host='a')", Timeout),
            ("ConnectionRefusedError: [Errno 111] Connection refused", Network),
            ("socket.gaierror: [Errno -2] Name or service not known", Network),
            ("urllib.error.URLError: <urlopen error [Errno 111] Connection refused>", Network),
            ("urllib.error.HTTPError: HTTP Error 404: Not Found", NotFound),
            ("urllib.error.HTTPError: HTTP Error 503: Service Unavailable", ServerError),
            ("requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: http://a", Auth),
            ("TimeoutError: timed out", Timeout),
            ("asyncio.exceptions.TimeoutError", Timeout),
            ("MemoryError", ServerError),
            ("pydantic_core._pydantic_core.ValidationError: 1 validation error for X", Validation),
            // What the table does not know is read as any other text.
            ("RuntimeError: the service answered with status 503", ServerError),
            ("RuntimeError: nobody knows", Unknown),
        ] {
            let frame = "  File \"/srv/main.py\", line 3, in <module>\n    fetch(timeout=5)\n";
            let text = format!("{TRACE}\n{frame}{exception}\n");
            let failure = Failure { exit: Some(Exit::Code(1)), stderr: &text, ..Failure::default() };
            assert_eq!(failure.category(), expected, "{exception}");
            // The last of several that follow each other counts.
            let chained = format!(
                "{TRACE}\n{frame}KeyError: 'x'\n\nDuring handling of the above exception, another exception occurred:\n\n{text}"
            );
            let failure = Failure { stderr: &chained, ..failure };
            assert_eq!(failure.category(), expected, "{exception} after another");
        }
    }

    const TRACE: &str = "Traceback (most recent call last):";

    #[test]
    fn only_what_may_pass_is_tried_again() {
        use ErrorCategory::{Network, RateLimit, ServerError, Timeout, Unknown};
        let again: Vec<_> =
            ErrorCategory::ALL.into_iter().filter(|category| category.is_retryable()).collect();
        assert_eq!(again, [Timeout, Network, RateLimit, ServerError, Unknown]);
        for category in ErrorCategory::ALL {
            assert_eq!(ErrorCategory::from_name(category.as_str()), Some(category));
            assert_eq!(serde_json::to_value(category).unwrap(), category.as_str());
        }
    }
}
