//! Forms: `name=value` pairs of a query or of a body in the query protocol, decoded exactly once.

use percent_encoding::percent_decode;

/// The pairs that a form may have. The largest request, a batch of ten messages with ten attributes each, has about 450.
pub const FORM_PAIRS_MAX: usize = 2_000;

/// Why bytes are not a form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAForm {
    #[error("a name or value of the form is not UTF-8")]
    NotText,
    #[error("the form has more than {FORM_PAIRS_MAX} parameters")]
    TooMany,
}

/// Reads `a=1&b=2` in order. A plus is a blank, as browsers and SDKs write it; a pair without `=` has an empty value.
pub fn read_form(text: &[u8]) -> Result<Vec<(String, String)>, NotAForm> {
    let pairs = text.split(|byte| *byte == b'&').filter(|pair| !pair.is_empty());
    let mut read = Vec::new();
    for pair in pairs {
        if read.len() == FORM_PAIRS_MAX {
            return Err(NotAForm::TooMany);
        }
        let equals = pair.iter().position(|byte| *byte == b'=');
        let (name, value) = equals.map_or((pair, &[][..]), |at| (&pair[..at], &pair[at + 1..]));
        read.push((decode(name)?, decode(value)?));
    }
    Ok(read)
}

fn decode(part: &[u8]) -> Result<String, NotAForm> {
    let blanks: Vec<u8> = part.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    String::from_utf8(percent_decode(&blanks).collect()).map_err(|_| NotAForm::NotText)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_are_decoded_once() {
        for (text, expected) in [
            ("", vec![]),
            ("a=1&b=2", vec![("a", "1"), ("b", "2")]),
            ("a&&b=", vec![("a", ""), ("b", "")]),
            ("a=x%20y+z%2B", vec![("a", "x y z+")]),
            ("a=%2541", vec![("a", "%41")]), // not decoded a second time
            ("a=b=c", vec![("a", "b=c")]),
            ("a=%zz%4", vec![("a", "%zz%4")]),
            ("%C3%A9=%E2%82%AC", vec![("é", "€")]),
        ] {
            let expected: Vec<_> = expected.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
            assert_eq!(read_form(text.as_bytes()), Ok(expected), "{text}");
        }
        assert_eq!(read_form(b"a=%ff"), Err(NotAForm::NotText));
        assert_eq!(read_form("a&".repeat(FORM_PAIRS_MAX + 1).as_bytes()), Err(NotAForm::TooMany));
    }
}
