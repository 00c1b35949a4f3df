//! The smallest parts of an expression, and where parentheses belong together.

use super::error::ExpressionError;

/// A part of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// A name, a keyword or a function: which one it is, its place decides.
    Word,
    /// `#name`, which stands for the name of an attribute.
    Name,
    /// `:value`, which stands for a value.
    Value,
    /// The place in a list.
    Digits,
    /// A comparator, a parenthesis, a bracket, a comma or a dot.
    Sign,
    End,
}

/// A part and where it stands in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Token<'t> {
    pub(super) kind: TokenKind,
    pub(super) text: &'t str,
    start: usize,
}

impl Token<'_> {
    pub(super) fn is_sign(&self, sign: &str) -> bool {
        self.kind == TokenKind::Sign && self.text == sign
    }

    /// Keywords are written in any case.
    pub(super) fn is_keyword(&self, keyword: &str) -> bool {
        self.kind == TokenKind::Word && self.text.eq_ignore_ascii_case(keyword)
    }

    const fn end(&self) -> usize {
        self.start + self.text.len()
    }
}

/// All parts of an expression. The last one is its end.
pub(super) fn tokens(text: &str) -> Result<Vec<Token<'_>>, ExpressionError> {
    let bytes = text.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte.is_ascii_whitespace() {
            at += 1;
            continue;
        }
        let word_end = |from: usize| {
            let rest = &bytes[from..];
            from + rest.iter().position(|byte| !is_word(*byte)).unwrap_or(rest.len())
        };
        let (kind, end) = match byte {
            b'#' => (TokenKind::Name, word_end(at + 1)),
            b':' => (TokenKind::Value, word_end(at + 1)),
            b'0'..=b'9' => {
                let rest = &bytes[at..];
                let count = rest.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
                (TokenKind::Digits, at + count)
            }
            byte if is_word(byte) => (TokenKind::Word, word_end(at)),
            b'<' if matches!(bytes.get(at + 1), Some(b'=' | b'>')) => (TokenKind::Sign, at + 2),
            b'>' if bytes.get(at + 1) == Some(&b'=') => (TokenKind::Sign, at + 2),
            b'=' | b'<' | b'>' | b'(' | b')' | b'[' | b']' | b',' | b'.' => (TokenKind::Sign, at + 1),
            _ => {
                let length = text[at..].chars().next().map_or(1, char::len_utf8);
                found.push(Token { kind: TokenKind::End, text: &text[at..at + length], start: at });
                return Err(syntax_error(text, &found, found.len() - 1));
            }
        };
        found.push(Token { kind, text: &text[at..end], start: at });
        if matches!(kind, TokenKind::Name | TokenKind::Value) && end == at + 1 {
            return Err(syntax_error(text, &found, found.len() - 1));
        }
        at = end;
    }
    found.push(Token { kind: TokenKind::End, text: "", start: text.len() });
    Ok(found)
}

const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// The error at a token, which shows its neighbours as AWS does.
pub(super) fn syntax_error(text: &str, tokens: &[Token<'_>], at: usize) -> ExpressionError {
    let token = &tokens[at];
    let first = tokens[at.saturating_sub(1)].start;
    let last = tokens.get(at + 1).unwrap_or(token).end();
    let shown = if token.text.is_empty() { "<EOF>" } else { token.text };
    ExpressionError::Syntax { token: shown.to_owned(), near: text[first..last].to_owned() }
}

/// How deep parentheses stand within each other, and whether a pair of them does nothing. AWS refuses such a pair: it
/// holds nothing but another pair. The parentheses of a function and of `IN` are no such pair.
pub(super) fn parentheses(tokens: &[Token<'_>]) -> (usize, bool) {
    let (mut open, mut depth, mut is_redundant) = (Vec::new(), 0, false);
    // Where the last pair that was closed began and ended.
    let mut closed = None;
    for (at, token) in tokens.iter().enumerate() {
        if token.is_sign("(") {
            open.push(at);
            depth = depth.max(open.len());
        } else if token.is_sign(")")
            && let Some(start) = open.pop()
        {
            is_redundant |= is_group(tokens, start) && closed == Some((start + 1, at - 1));
            closed = Some((start, at));
        }
    }
    (depth, is_redundant)
}

fn is_group(tokens: &[Token<'_>], open: usize) -> bool {
    let before = open.checked_sub(1).map(|before| tokens[before]);
    before.is_none_or(|token| {
        token.kind != TokenKind::Word
            || ["AND", "OR", "NOT", "BETWEEN"].iter().any(|word| token.is_keyword(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_cut_into_parts() {
        for (text, expected) in [
            ("a.b[0].#c<=:d", "a . b [ 0 ] . #c <= :d "),
            ("a<>b AND(c)", "a <> b AND ( c ) "),
            (" \n\t", ""),
            ("a1_ =:_", "a1_ = :_ "),
        ] {
            let found = tokens(text).unwrap();
            assert_eq!(
                found.iter().map(|token| token.text).collect::<Vec<_>>().join(" "),
                expected,
                "{text}"
            );
        }
        for (text, token, near) in
            [("a = ü", "ü", "= ü"), ("a - b", "-", "a -"), ("# = a", "#", "#"), ("a = \"x\"", "\"", "= \"")]
        {
            let error = ExpressionError::Syntax { token: token.to_owned(), near: near.to_owned() };
            assert_eq!(tokens(text), Err(error), "{text}");
        }
    }

    #[test]
    fn a_pair_of_parentheses_around_a_pair_is_redundant() {
        for (text, expected) in [
            ("(a = b)", (1, false)),
            ("((a = b))", (2, true)),
            ("a > ((b))", (2, true)),
            ("NOT ((a = b))", (2, true)),
            ("((a = b) OR (a = c))", (2, false)),
            ("((a = b) AND c = d)", (2, false)),
            ("size((a)) > b", (2, false)),
            ("f(((a)))", (3, true)),
            ("a IN ((b))", (2, false)),
            (")))(", (1, false)),
        ] {
            assert_eq!(parentheses(&tokens(text).unwrap()), expected, "{text}");
        }
    }
}
