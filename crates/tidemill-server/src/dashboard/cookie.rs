//! Cookies: reading what a browser sends, writing what it is to keep.

use axum::http::header::COOKIE;
use axum::http::{HeaderMap, HeaderValue};

/// The session's word.
pub(super) const SESSION: &str = "tidemill_session";
/// What the next page tells once.
pub(super) const NOTE: &str = "tidemill_note";

/// The value of a cookie. A name that comes twice counts as absent: one of the two is not ours.
pub(super) fn read<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = all.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut own = pairs.filter(|(own, _)| *own == name).map(|(_, value)| value);
    match (own.next(), own.next()) {
        (Some(value), None) => Some(value),
        _ => None,
    }
}

/// A header that sets a cookie, or removes it when `seconds` is 0. Scripts never see it and other sites never send it.
pub(super) fn write(name: &str, value: &str, seconds: u64, is_secure: bool) -> Option<HeaderValue> {
    let secure = if is_secure { "; Secure" } else { "" };
    let text = format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age={seconds}{secure}");
    HeaderValue::from_str(&text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_cookie_of_a_name_counts_and_two_do_not() {
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, "a=1; tidemill_session=word; b=2".parse().unwrap());
        assert_eq!(read(&headers, SESSION), Some("word"));
        assert_eq!(read(&headers, NOTE), None);
        headers.append(COOKIE, "tidemill_session=other".parse().unwrap());
        assert_eq!(read(&headers, SESSION), None);
    }
}
