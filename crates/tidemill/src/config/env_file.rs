//! `.env`: lines of `NAME=value`.

/// A name, its value and its line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) value: String,
    pub(super) number: u32,
}

/// The assignments in order, or the first line that is none.
pub(super) fn read(text: &str) -> Result<Vec<Line>, (u32, String)> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = Vec::new();
    for (line, number) in text.lines().zip(1u32..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let Some((name, value)) = line.split_once('=') else {
            return Err((number, "NAME=value is expected".to_owned()));
        };
        let name = name.trim();
        let is_name = !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !is_name {
            return Err((number, format!("{name:?} is no name of a variable")));
        }
        let value = value_of(value.trim()).map_err(|problem| (number, format!("{name}: {problem}")))?;
        lines.push(Line { name: name.to_owned(), value, number });
    }
    Ok(lines)
}

/// A value in quotes goes to the closing one; a bare value ends at a comment.
fn value_of(text: &str) -> Result<String, String> {
    let Some(quote @ ('"' | '\'')) = text.chars().next() else {
        let end = text.find(" #").unwrap_or(text.len());
        return Ok(text[..end].trim_end().to_owned());
    };
    let mut value = String::new();
    let mut rest = text[1..].chars();
    loop {
        match rest.next() {
            None => return Err(format!("the closing {quote} is missing")),
            Some('\\') if quote == '"' => match rest.next() {
                Some('n') => value.push('\n'),
                Some('r') => value.push('\r'),
                Some('t') => value.push('\t'),
                Some(other) => value.push(other),
                None => return Err(format!("the closing {quote} is missing")),
            },
            Some(character) if character == quote => break,
            Some(character) => value.push(character),
        }
    }
    let after = rest.as_str().trim_start();
    if after.is_empty() || after.starts_with('#') {
        Ok(value)
    } else {
        Err(format!("{after:?} follows the closing {quote}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read_as_dotenv_reads_them() {
        let text = "\u{feff}# a comment\n\nA=1\nexport B = two words # comment\nC=\"x\\ny # no\" # yes\nD='\\n'\nE=\nF=a#b\n";
        let read = read(text).unwrap();
        let pairs: Vec<_> =
            read.iter().map(|line| (line.name.as_str(), line.value.as_str(), line.number)).collect();
        let expected = [
            ("A", "1", 3),
            ("B", "two words", 4),
            ("C", "x\ny # no", 5),
            ("D", "\\n", 6),
            ("E", "", 7),
            ("F", "a#b", 8),
        ];
        assert_eq!(pairs, expected);
    }

    #[test]
    fn what_is_no_assignment_is_refused() {
        for (text, expected) in [
            ("A=1\nnothing", (2, "NAME=value is expected".to_owned())),
            ("1A=1", (1, "\"1A\" is no name of a variable".to_owned())),
            ("A=\"x", (1, "A: the closing \" is missing".to_owned())),
            ("A='x' y", (1, "A: \"y\" follows the closing '".to_owned())),
        ] {
            assert_eq!(read(text), Err(expected), "{text}");
        }
    }
}
