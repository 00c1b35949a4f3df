//! The head of a request as it came over the wire: nothing in it is decoded yet.

/// Method, path, query and headers. What is read from it decodes each part once, and only once.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'r> {
    pub method: &'r str,
    /// As on the request line, percent-encoded, with its first slash.
    pub path: &'r str,
    /// Without the question mark; empty if there is none.
    pub query: &'r str,
    /// Names in any case. Of a name that comes twice the first one counts.
    pub headers: &'r [(&'r str, &'r str)],
}

impl<'r> RequestHead<'r> {
    /// The value of a header, without the blanks around it.
    pub fn header(&self, name: &str) -> Option<&'r str> {
        let found = self.headers.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.trim_matches([' ', '\t']))
    }

    /// The media type of the body, without its parameters.
    pub fn media_type(&self) -> Option<&'r str> {
        let whole = self.header("content-type")?;
        Some(whole.split_once(';').map_or(whole, |(media_type, _)| media_type).trim_end())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_found_in_any_case_and_without_their_blanks() {
        let headers = [
            ("X-Amz-Target", " A.B "),
            ("content-type", "text/xml ; charset=utf-8"),
            ("x-amz-target", "C.D"),
        ];
        let head = RequestHead { method: "POST", path: "/", query: "", headers: &headers };
        assert_eq!(head.header("x-amz-target"), Some("A.B"));
        assert_eq!(head.header("host"), None);
        assert_eq!(head.media_type(), Some("text/xml"));
    }
}
