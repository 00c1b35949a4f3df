//! YAML: one document, text keys, anchors within bounds.

use std::collections::HashMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, Tag};

use crate::node::{SourceEntry, SourceKind, SourceNode, repeated_keys};
use crate::position::TextPosition;
use crate::scalar;
use crate::text::{DEPTH_MAX, Found, PROBLEMS_MAX};

/// How many bytes anchors may hold, and how many aliases may add: a few lines must not become gigabytes.
const ALIAS_BYTES_MAX: usize = 1 << 20;

/// The document's value. Grammar stops the reading; what is wrong beside it is collected.
pub(crate) fn read(text: &str) -> Result<SourceNode, Vec<Found>> {
    let mut tree = Tree::default();
    for step in Parser::new_from_str(text) {
        let (event, span) = match step {
            Ok(step) => step,
            Err(error) => {
                tree.found.push(grammar(text, &error));
                break;
            }
        };
        if tree.take(event, span).is_break() || tree.found.len() >= PROBLEMS_MAX {
            break;
        }
    }
    match tree.root {
        Some(root) if tree.found.is_empty() => Ok(root),
        _ if !tree.found.is_empty() => Err(tree.found),
        _ => Err(vec![Found::new(TextPosition::START, "the file is empty")]),
    }
}

fn place_of(span: Span) -> TextPosition {
    place(span.start.line(), span.start.col())
}

/// The parser counts lines from 1 and columns from 0.
fn place(line: usize, column: usize) -> TextPosition {
    let bounded = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    TextPosition { line: bounded(line.max(1)), column: bounded(column.saturating_add(1)) }
}

fn grammar(text: &str, error: &ScanError) -> Found {
    let marker = error.marker();
    let place = place(marker.line(), marker.col());
    // The parser stumbles over a tab where it is, or at a line beside it.
    let lines = text.lines().zip(1u32..).skip((place.line as usize).saturating_sub(2)).take(3);
    for (line, number) in lines {
        let blank = line.len() - line.trim_start_matches([' ', '\t']).len();
        if let Some(at) = line[..blank].find('\t') {
            let column = u32::try_from(at + 1).unwrap_or(u32::MAX);
            return Found::new(TextPosition { line: number, column }, "a tab cannot indent; use spaces");
        }
    }
    // The parser reads ahead of what it hands out, and has a limit of its own beyond ours.
    if error.info().contains("recursion limit") {
        return Found::new(place, too_deep());
    }
    Found::new(place, error.info())
}

fn too_deep() -> String {
    format!("nested deeper than {DEPTH_MAX} levels")
}

#[derive(Default)]
struct Tree {
    /// The lists and maps that are open, the innermost last.
    open: Vec<Open>,
    root: Option<SourceNode>,
    documents: u32,
    anchors: HashMap<usize, SourceNode>,
    anchored_bytes: usize,
    aliased_bytes: usize,
    found: Vec<Found>,
}

struct Open {
    place: TextPosition,
    anchor: usize,
    inside: Inside,
}

enum Inside {
    List(Vec<SourceNode>),
    /// The entries, and the key whose value comes next.
    Map(Vec<SourceEntry>, Option<(String, TextPosition)>),
}

type Flow = std::ops::ControlFlow<()>;

impl Tree {
    /// Breaks when nothing that follows could be read with sense.
    fn take(&mut self, event: Event<'_>, span: Span) -> Flow {
        let place = place_of(span);
        match event {
            Event::DocumentStart(_) => {
                self.documents += 1;
                if self.documents > 1 {
                    return self.stop(place, "a second document begins here; a file holds one");
                }
            }
            Event::Scalar(text, style, anchor, tag) => {
                let value = self.scalar(&text, style, tag.as_deref(), place);
                return self.put(SourceNode { place, kind: value }, anchor);
            }
            Event::SequenceStart(anchor, tag) => {
                self.check_tag(tag.as_deref(), "seq", place);
                return self.open(Open { place, anchor, inside: Inside::List(Vec::new()) });
            }
            Event::MappingStart(anchor, tag) => {
                self.check_tag(tag.as_deref(), "map", place);
                return self.open(Open { place, anchor, inside: Inside::Map(Vec::new(), None) });
            }
            Event::SequenceEnd | Event::MappingEnd => return self.close(),
            Event::Alias(anchor) => return self.alias(anchor, place),
            Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
        }
        Flow::Continue(())
    }

    fn note(&mut self, place: TextPosition, message: impl Into<String>) {
        self.found.push(Found::new(place, message));
    }

    fn stop(&mut self, place: TextPosition, message: impl Into<String>) -> Flow {
        self.note(place, message);
        Flow::Break(())
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        tag: Option<&Tag>,
        place: TextPosition,
    ) -> SourceKind {
        let quoted = !matches!(style, ScalarStyle::Plain);
        let suffix = match tag {
            None if quoted => return SourceKind::Text(text.to_owned()),
            None => None,
            Some(tag) if tag.is_yaml_core_schema() => Some(tag.suffix.as_str()),
            // The tag `!` alone says: not a plain scalar.
            Some(tag) if tag.handle.is_empty() && tag.suffix == "!" => Some("str"),
            Some(tag) => {
                self.note(place, format!("the tag {tag} is unknown"));
                return SourceKind::Null;
            }
        };
        if suffix == Some("str") {
            return SourceKind::Text(text.to_owned());
        }
        let kind = match scalar::plain(text) {
            Ok(kind) => kind,
            Err(problem) => {
                self.note(place, problem);
                return SourceKind::Null;
            }
        };
        let fits = match (suffix, &kind) {
            (None, _)
            | (Some("null"), SourceKind::Null)
            | (Some("bool"), SourceKind::Bool(_))
            | (Some("float"), SourceKind::Number(_)) => true,
            (Some("int"), SourceKind::Number(number)) => !number.is_f64(),
            _ => false,
        };
        if !fits {
            let suffix = suffix.unwrap_or_default();
            self.note(place, format!("the tag !!{suffix} does not fit this value"));
        }
        kind
    }

    fn check_tag(&mut self, tag: Option<&Tag>, expected: &str, place: TextPosition) {
        if let Some(tag) = tag
            && !(tag.is_yaml_core_schema() && tag.suffix == expected)
        {
            self.note(place, format!("the tag {tag} does not fit here"));
        }
    }

    fn open(&mut self, open: Open) -> Flow {
        if self.open.len() >= DEPTH_MAX {
            return self.stop(open.place, too_deep());
        }
        if self.expects_key() {
            return self.stop(open.place, "a key must be text, not a list or a map");
        }
        self.open.push(open);
        Flow::Continue(())
    }

    fn expects_key(&self) -> bool {
        matches!(self.open.last(), Some(Open { inside: Inside::Map(_, None), .. }))
    }

    fn close(&mut self) -> Flow {
        let Some(Open { place, anchor, inside }) = self.open.pop() else { return Flow::Continue(()) };
        let kind = match inside {
            Inside::List(items) => SourceKind::List(items),
            Inside::Map(entries, _) => {
                for (key, place) in repeated_keys(&entries) {
                    self.found.push(Found::new(place, format!("the key {key} is given twice")));
                }
                SourceKind::Map(entries)
            }
        };
        self.put(SourceNode { place, kind }, anchor)
    }

    fn alias(&mut self, anchor: usize, place: TextPosition) -> Flow {
        let Some(node) = self.anchors.get(&anchor) else {
            return self.stop(place, "an alias may not stand inside of what it stands for");
        };
        self.aliased_bytes = self.aliased_bytes.saturating_add(node.weight());
        if self.aliased_bytes > ALIAS_BYTES_MAX {
            return self.stop(place, format!("aliases add more than {ALIAS_BYTES_MAX} bytes"));
        }
        let node = SourceNode { place, kind: node.kind.clone() };
        self.put(node, 0)
    }

    /// A value is whole: it goes into the innermost list or map.
    fn put(&mut self, node: SourceNode, anchor: usize) -> Flow {
        // The parser's number of "no anchor" is 0.
        if anchor != 0 {
            self.anchored_bytes = self.anchored_bytes.saturating_add(node.weight());
            if self.anchored_bytes > ALIAS_BYTES_MAX {
                return self.stop(node.place, format!("anchors hold more than {ALIAS_BYTES_MAX} bytes"));
            }
            self.anchors.insert(anchor, node.clone());
        }
        match self.open.last_mut().map(|open| &mut open.inside) {
            None => self.root = Some(node),
            Some(Inside::List(items)) => items.push(node),
            Some(Inside::Map(entries, key)) => match key.take() {
                Some((key, place)) => entries.push(SourceEntry { key, place, value: node }),
                None => match node.kind {
                    SourceKind::Text(text) => *key = Some((text, node.place)),
                    kind => {
                        *key = Some((String::new(), node.place));
                        let shown = SourceNode { place: node.place, kind }.to_value();
                        self.note(
                            node.place,
                            format!("a key must be text; write \"{shown}\" if that is meant"),
                        );
                    }
                },
            },
        }
        Flow::Continue(())
    }
}
