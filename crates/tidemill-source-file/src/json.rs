//! JSON, strictly, with the place of every value.

use crate::node::{SourceEntry, SourceKind, SourceNode, repeated_keys};
use crate::position::TextPosition;
use crate::text::{DEPTH_MAX, Found, PROBLEMS_MAX};

pub(crate) fn read(text: &str) -> Result<SourceNode, Vec<Found>> {
    let mut reader = Reader { text, at: 0, place: TextPosition::START, depth: 0, found: Vec::new() };
    let root = reader.document();
    let mut found = reader.found;
    match root {
        Ok(root) if found.is_empty() => Ok(root),
        Ok(_) => Err(found),
        Err(problem) => {
            found.push(problem);
            Err(found)
        }
    }
}

struct Reader<'a> {
    text: &'a str,
    /// In bytes, always between characters.
    at: usize,
    place: TextPosition,
    depth: usize,
    /// What is wrong beside the grammar.
    found: Vec<Found>,
}

impl<'a> Reader<'a> {
    fn document(&mut self) -> Result<SourceNode, Found> {
        self.skip_blank();
        if self.rest().is_empty() {
            return Err(self.wrong("the file is empty"));
        }
        let root = self.value()?;
        self.skip_blank();
        if self.rest().is_empty() { Ok(root) } else { Err(self.wrong("nothing may follow the value")) }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn next(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn wrong(&self, message: impl Into<String>) -> Found {
        Found::new(self.place, message)
    }

    fn advance(&mut self, bytes: usize) {
        let passed = &self.text[self.at..self.at + bytes];
        for character in passed.chars() {
            if character == '\n' {
                self.place = TextPosition { line: self.place.line.saturating_add(1), column: 1 };
            } else {
                self.place.column = self.place.column.saturating_add(1);
            }
        }
        self.at += bytes;
    }

    fn skip_blank(&mut self) {
        let rest = self.rest();
        let blank = rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
        self.advance(blank);
    }

    fn value(&mut self) -> Result<SourceNode, Found> {
        let place = self.place;
        let kind = match self.next() {
            None => return Err(self.wrong("a value is missing at the end")),
            Some(b'{') => self.nested(Self::map)?,
            Some(b'[') => self.nested(Self::list)?,
            Some(b'"') => SourceKind::Text(self.text()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(_) => self.word()?,
        };
        Ok(SourceNode { place, kind })
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<SourceKind, Found>) -> Result<SourceKind, Found> {
        if self.depth >= DEPTH_MAX {
            return Err(self.wrong(format!("nested deeper than {DEPTH_MAX} levels")));
        }
        self.depth += 1;
        self.advance(1);
        self.skip_blank();
        let kind = read(self);
        self.depth -= 1;
        kind
    }

    fn list(&mut self) -> Result<SourceKind, Found> {
        let mut items = Vec::new();
        if self.next() == Some(b']') {
            self.advance(1);
            return Ok(SourceKind::List(items));
        }
        loop {
            self.skip_blank();
            items.push(self.value()?);
            self.skip_blank();
            match self.next() {
                Some(b',') => self.advance(1),
                Some(b']') => {
                    self.advance(1);
                    return Ok(SourceKind::List(items));
                }
                _ => return Err(self.wrong("a comma or ] is missing")),
            }
        }
    }

    fn map(&mut self) -> Result<SourceKind, Found> {
        let mut entries = Vec::new();
        if self.next() == Some(b'}') {
            self.advance(1);
            return Ok(SourceKind::Map(entries));
        }
        loop {
            self.skip_blank();
            let place = self.place;
            if self.next() != Some(b'"') {
                return Err(self.wrong("a key in quotes is missing"));
            }
            let key = self.text()?;
            self.skip_blank();
            if self.next() != Some(b':') {
                return Err(self.wrong("a colon is missing after the key"));
            }
            self.advance(1);
            self.skip_blank();
            let value = self.value()?;
            entries.push(SourceEntry { key, place, value });
            self.skip_blank();
            match self.next() {
                Some(b',') => self.advance(1),
                Some(b'}') => break self.advance(1),
                _ => return Err(self.wrong("a comma or } is missing")),
            }
        }
        for (key, place) in repeated_keys(&entries) {
            if self.found.len() < PROBLEMS_MAX {
                self.found.push(Found::new(place, format!("the key {key} is given twice")));
            }
        }
        Ok(SourceKind::Map(entries))
    }

    /// A string: its end is found here, what is in it is read by the JSON library.
    fn text(&mut self) -> Result<String, Found> {
        let bytes = self.rest().as_bytes();
        let mut end = 1;
        loop {
            match bytes.get(end) {
                Some(b'"') => break,
                Some(b'\\') => end += 2,
                Some(b'\n') | None => return Err(self.wrong("the closing quote is missing")),
                Some(_) => end += 1,
            }
        }
        let literal = &self.rest()[..=end];
        let text = serde_json::from_str(literal).map_err(|_| {
            self.wrong("the text holds a control character or an escape that JSON does not have")
        })?;
        self.advance(literal.len());
        Ok(text)
    }

    fn number(&mut self) -> Result<SourceKind, Found> {
        let rest = self.rest();
        let is_part = |c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E');
        let literal = &rest[..rest.len() - rest.trim_start_matches(is_part).len()];
        let is_whole = literal.trim_start_matches('-').bytes().all(|byte| byte.is_ascii_digit());
        let number: serde_json::Number =
            serde_json::from_str(literal).map_err(|_| self.wrong(format!("{literal} is not a number")))?;
        if is_whole && number.is_f64() {
            return Err(self.wrong(format!("{literal} is too large for a number; quote it if it is text")));
        }
        self.advance(literal.len());
        Ok(SourceKind::Number(number))
    }

    fn word(&mut self) -> Result<SourceKind, Found> {
        for (word, kind) in
            [("null", SourceKind::Null), ("true", SourceKind::Bool(true)), ("false", SourceKind::Bool(false))]
        {
            let Some(after) = self.rest().strip_prefix(word) else { continue };
            if !after.starts_with(|c: char| c.is_alphanumeric() || c == '_') {
                self.advance(word.len());
                return Ok(kind);
            }
        }
        Err(self.wrong("a value is missing: text in quotes, a number, true, false, null, a list or a map"))
    }
}
