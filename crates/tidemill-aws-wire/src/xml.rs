//! A writer of XML for answers: elements with text, nothing else. What is written can only be well formed.
//!
//! Carriage returns and other control characters are written as references, as AWS does: a parser would turn a bare
//! carriage return into a line feed, and a message would come back with another MD5 sum. What XML has no form of at all is
//! written as U+FFFD.

use std::fmt::Write as _;

/// One XML document that grows from its root inwards.
#[derive(Debug)]
pub struct XmlWriter {
    text: String,
}

impl XmlWriter {
    /// A document with the root `name`, of `namespace` if there is one, filled by `fill`.
    pub fn document(name: &str, namespace: Option<&str>, fill: impl FnOnce(&mut Self)) -> String {
        let mut writer = Self { text: String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n") };
        let namespace = namespace.map(|uri| format!(" xmlns=\"{uri}\"")).unwrap_or_default();
        let _ = write!(writer.text, "<{name}{namespace}>");
        fill(&mut writer);
        let _ = write!(writer.text, "</{name}>");
        writer.text
    }

    /// A document whose root holds text alone.
    pub fn root_text(name: &str, namespace: &str, text: &str) -> String {
        Self::document(name, Some(namespace), |writer| escape(&mut writer.text, text))
    }

    /// An element that holds others.
    pub fn element(&mut self, name: &str, fill: impl FnOnce(&mut Self)) {
        let _ = write!(self.text, "<{name}>");
        fill(self);
        let _ = write!(self.text, "</{name}>");
    }

    /// An element that holds text.
    pub fn text(&mut self, name: &str, text: &str) {
        self.element(name, |writer| escape(&mut writer.text, text));
    }

    /// An element that holds text, if there is any.
    pub fn optional(&mut self, name: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(name, text);
        }
    }
}

fn escape(out: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\t' | '\n' => out.push(character),
            '\r' | '\x7f'..='\u{9f}' | '\u{2028}' => {
                let _ = write!(out, "&#x{:x};", u32::from(character));
            }
            // Not even a reference may name these.
            '\0'..='\x1f' | '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            _ => out.push(character),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_escaped_and_control_characters_are_references() {
        for (text, expected) in [
            ("a<b>&\"'", "a&lt;b&gt;&amp;&quot;'"),
            ("one\r\n\ttwo", "one&#xd;\n\ttwo"),
            ("\u{1}\u{7f}\u{85}\u{ffff}", "\u{fffd}&#x7f;&#x85;\u{fffd}"),
            ("é🦀]]>", "é🦀]]&gt;"),
        ] {
            let mut out = String::new();
            escape(&mut out, text);
            assert_eq!(out, expected);
        }
    }

    #[test]
    fn elements_close_in_order() {
        let written = XmlWriter::document("A", Some("urn:x"), |writer| {
            writer.element("B", |writer| writer.text("C", "1"));
            writer.optional("D", None);
        });
        assert_eq!(
            written,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<A xmlns=\"urn:x\"><B><C>1</C></B></A>"
        );
    }
}
