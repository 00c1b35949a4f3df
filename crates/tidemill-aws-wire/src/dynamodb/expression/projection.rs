//! Projections: the parts of an item that are wanted.
//!
//! Members of a list keep their order and close up; a map or list of which nothing is found is left out.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::error::ExpressionError;
use super::parse::Parser;
use super::path::{DocumentPath, PathStep};
use super::placeholders::Placeholders;
use crate::dynamodb::value::{AttributeValue, Item};

/// Which parts of an item are wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemProjection {
    attributes: BTreeMap<Arc<str>, Wanted>,
}

/// What is wanted of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    Whole,
    Fields(BTreeMap<Arc<str>, Wanted>),
    Places(BTreeMap<usize, Wanted>),
}

/// Two paths that cannot both be wanted.
enum Clash {
    /// One leads to the other, or both are the same.
    Overlap,
    /// One takes for a map what is a list for the other.
    Conflict,
}

impl ItemProjection {
    pub fn parse(text: &str, placeholders: &mut Placeholders) -> Result<Self, ExpressionError> {
        let mut parser = Parser::new(text, placeholders)?;
        let mut paths = vec![parser.path()?];
        while parser.takes_sign(",") {
            paths.push(parser.path()?);
        }
        parser.end()?;
        Self::of_paths(&paths)
    }

    /// The attributes of these names as wholes.
    pub fn of_attributes<N: Into<Arc<str>>>(names: impl IntoIterator<Item = N>) -> Self {
        Self { attributes: names.into_iter().map(|name| (name.into(), Wanted::Whole)).collect() }
    }

    fn of_paths(paths: &[DocumentPath]) -> Result<Self, ExpressionError> {
        let mut attributes = BTreeMap::new();
        for (at, path) in paths.iter().enumerate() {
            let Err(clash) = want(&mut attributes, Arc::clone(&path.attribute), &path.steps) else {
                continue;
            };
            let two = path.to_string();
            let one = paths[..at].iter().find(|earlier| clashes(earlier, path)).unwrap_or(path).to_string();
            return Err(match clash {
                Clash::Overlap => ExpressionError::Overlap { one, two },
                Clash::Conflict => ExpressionError::Conflict { one, two },
            });
        }
        Ok(Self { attributes })
    }

    /// The wanted parts of an item that it has.
    pub fn apply(&self, item: &Item) -> Item {
        fields_of(&self.attributes, item)
    }
}

fn want<K: Ord>(level: &mut BTreeMap<K, Wanted>, key: K, steps: &[PathStep]) -> Result<(), Clash> {
    use std::collections::btree_map::Entry;
    let wanted = match (level.entry(key), steps.first()) {
        (Entry::Vacant(free), None) => {
            free.insert(Wanted::Whole);
            return Ok(());
        }
        (Entry::Vacant(free), Some(PathStep::Field(_))) => free.insert(Wanted::Fields(BTreeMap::new())),
        (Entry::Vacant(free), Some(PathStep::Place(_))) => free.insert(Wanted::Places(BTreeMap::new())),
        (Entry::Occupied(taken), Some(_)) => taken.into_mut(),
        (Entry::Occupied(_), None) => return Err(Clash::Overlap),
    };
    match (wanted, steps) {
        (Wanted::Fields(fields), [PathStep::Field(name), rest @ ..]) => want(fields, Arc::clone(name), rest),
        (Wanted::Places(places), [PathStep::Place(place), rest @ ..]) => want(places, *place, rest),
        (Wanted::Whole, _) => Err(Clash::Overlap),
        _ => Err(Clash::Conflict),
    }
}

/// Whether two paths share all steps of the shorter, or part where one takes a field and the other a place.
fn clashes(one: &DocumentPath, two: &DocumentPath) -> bool {
    one.attribute == two.attribute
        && one.steps.iter().zip(&two.steps).find(|(left, right)| left != right).is_none_or(|pair| {
            matches!(
                pair,
                (PathStep::Field(_), PathStep::Place(_)) | (PathStep::Place(_), PathStep::Field(_))
            )
        })
}

fn fields_of(wanted: &BTreeMap<Arc<str>, Wanted>, fields: &Item) -> Item {
    let part = |(name, wanted): (&Arc<str>, &Wanted)| {
        Some((name.as_ref().to_owned(), part_of(wanted, fields.get(&**name)?)?))
    };
    wanted.iter().filter_map(part).collect()
}

fn part_of(wanted: &Wanted, value: &AttributeValue) -> Option<AttributeValue> {
    match (wanted, value) {
        (Wanted::Whole, value) => Some(value.clone()),
        (Wanted::Fields(wanted), AttributeValue::M(fields)) => {
            let found = fields_of(wanted, fields);
            (!found.is_empty()).then_some(AttributeValue::M(found))
        }
        (Wanted::Places(wanted), AttributeValue::L(values)) => {
            let part = |(place, wanted): (&usize, &Wanted)| part_of(wanted, values.get(*place)?);
            let found: Vec<_> = wanted.iter().filter_map(part).collect();
            (!found.is_empty()).then_some(AttributeValue::L(found))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::dynamodb::expression::fixture::placeholders;
    use crate::dynamodb::plain_json::{item_from_plain, item_to_plain};

    #[test]
    fn only_what_is_wanted_comes_back() {
        let item = json!({"a": {"b": [10, 11, {"c": 1, "d": 2}], "e": "x"}, "b": 2, "view": 3});
        let item = item_from_plain(item.as_object().unwrap()).unwrap();
        for (text, expected) in [
            ("b", json!({"b": 2})),
            ("b, #view", json!({"b": 2, "view": 3})),
            ("absent, b.c, a.absent", json!({})),
            ("a[0]", json!({})),
            ("a.e", json!({"a": {"e": "x"}})),
            ("a.b[2].c", json!({"a": {"b": [{"c": 1}]}})),
            ("a.b[2].d, a.b[0], a.b[9]", json!({"a": {"b": [10, {"d": 2}]}})),
            ("#a.#b[1]", json!({"a": {"b": [11]}})),
        ] {
            let projection = ItemProjection::parse(text, &mut placeholders()).expect(text);
            assert_eq!(item_to_plain(&projection.apply(&item)), expected.to_string(), "{text}");
        }
    }

    #[test]
    fn paths_that_clash_are_refused() {
        let words = "with each other; must remove or rewrite one of these paths; path one:";
        for (text, expected) in [
            ("", "The expression can not be empty;".to_owned()),
            ("a, a", format!("Two document paths overlap {words} [a], path two: [a]")),
            ("a.b, c, #a", format!("Two document paths overlap {words} [a, b], path two: [a]")),
            ("a, a.b[0]", format!("Two document paths overlap {words} [a], path two: [a, b, [0]]")),
            ("a.b, a[0]", format!("Two document paths conflict {words} [a, b], path two: [a, [0]]")),
            ("a b", "Syntax error; token: \"b\", near: \"a b\"".to_owned()),
            ("a,", "Syntax error; token: \"<EOF>\", near: \",\"".to_owned()),
            (":1", "Syntax error; token: \":1\", near: \":1\"".to_owned()),
            ("(a)", "Syntax error; token: \"(\", near: \"(a\"".to_owned()),
            ("status", "Attribute name is a reserved keyword; reserved keyword: status".to_owned()),
        ] {
            let found = ItemProjection::parse(text, &mut placeholders()).expect_err(text);
            assert_eq!(found.to_string(), expected, "{text}");
        }
    }
}
