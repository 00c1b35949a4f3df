//! What operators and functions want of their operands.
//!
//! Only what the request says can be checked: a value has a type, a path has one when an item is looked at.

use super::condition::{Comparator, ItemCondition, Operand};
use super::error::ExpressionError;
use super::parse::{Parsed, Parser, stand_in_operand};
use super::path::DocumentPath;
use crate::dynamodb::value::{AttributeType, AttributeValue};

/// What AWS shows for an operand that is a path where a type is wanted.
const ANY_TYPE: &str = "{NS,SS,L,BS,N,M,B,BOOL,NULL,S}";

/// How much of a value or a path an error shows.
const SHOWN_BYTES_MAX: usize = 256;

impl Parser<'_, '_> {
    pub(super) fn check_compare(&mut self, left: &Operand, comparator: Comparator, right: &Operand) {
        if !matches!(comparator, Comparator::Equal | Comparator::NotEqual) {
            self.check_ordered(comparator.sign(), &[left, right]);
        }
        self.check_distinct(comparator.sign(), left, &[right]);
    }

    pub(super) fn check_between(&mut self, operand: &Operand, lower: &Operand, upper: &Operand) {
        self.check_ordered("BETWEEN", &[operand, lower, upper]);
        self.check_distinct("BETWEEN", operand, &[lower, upper]);
        if self.has_problem() {
            return;
        }
        let (Operand::Value(low), Operand::Value(high)) = (lower, upper) else { return };
        let shown = |value: &AttributeValue| format!("{{{}:{}}}", value.kind().name(), shown(value));
        if low.kind() != high.kind() {
            self.problem(ExpressionError::BoundTypes { lower: shown(low), upper: shown(high) });
        } else if low.order(high).is_some_and(std::cmp::Ordering::is_gt) {
            self.problem(ExpressionError::BoundOrder { lower: shown(low), upper: shown(high) });
        }
    }

    pub(super) fn check_distinct(&mut self, operator: &'static str, first: &Operand, others: &[&Operand]) {
        if !self.has_problem()
            && let Operand::Path(path) = first
            && others.iter().any(|other| matches!(other, Operand::Path(other) if other == path))
        {
            self.problem(ExpressionError::SameOperands { operator, operand: beginning(&path.to_string()) });
        }
    }

    fn check_ordered(&mut self, operator: &'static str, operands: &[&Operand]) {
        self.check_types(operator, operands, AttributeType::is_ordered);
    }

    fn check_types(
        &mut self,
        operator: &'static str,
        operands: &[&Operand],
        fits: fn(AttributeType) -> bool,
    ) {
        let wrong = operands.iter().filter_map(|operand| known_type(operand)).find(|kind| !fits(*kind));
        if let Some(kind) = wrong {
            self.problem(ExpressionError::OperandType { operator, found: kind.name() });
        }
    }

    /// The operands of a function, if there are as many as it wants.
    fn counted<const COUNT: usize>(
        &mut self,
        function: &'static str,
        operands: Vec<Operand>,
    ) -> Option<[Operand; COUNT]> {
        let count = operands.len();
        let counted = operands.try_into().ok();
        if counted.is_none() {
            self.problem(ExpressionError::OperandCount { function, count });
        }
        counted
    }

    pub(super) fn size(&mut self, operands: Vec<Operand>) -> Operand {
        let Some([operand]) = self.counted("size", operands) else { return stand_in_size() };
        let has_size = |kind| !matches!(kind, AttributeType::N | AttributeType::Bool | AttributeType::Null);
        self.check_types("size", &[&operand], has_size);
        match operand {
            Operand::Path(path) => Operand::Size(path),
            Operand::Value(value) => Operand::SizeOfValue(value),
            // A size has no size; that was noted.
            other @ (Operand::Size(_) | Operand::SizeOfValue(_)) => other,
        }
    }

    pub(super) fn existence(
        &mut self,
        function: &'static str,
        operands: Vec<Operand>,
        condition: fn(DocumentPath) -> ItemCondition,
    ) -> Parsed {
        let path = match self.counted(function, operands) {
            Some([operand]) => self.required_path(function, operand),
            None => stand_in_path(),
        };
        Parsed::Function(condition(path), function)
    }

    fn required_path(&mut self, function: &'static str, operand: Operand) -> DocumentPath {
        if let Operand::Path(path) = operand {
            return path;
        }
        self.problem(ExpressionError::PathRequired(function));
        stand_in_path()
    }

    pub(super) fn attribute_type(&mut self, operands: Vec<Operand>) -> Parsed {
        const NAME: &str = "attribute_type";
        let mut kind = None;
        let mut path = stand_in_path();
        if let Some([operand, wanted]) = self.counted(NAME, operands) {
            self.check_distinct(NAME, &operand, &[&wanted]);
            match &wanted {
                Operand::Value(value) => match &**value {
                    AttributeValue::S(name) => {
                        kind = AttributeType::from_name(name);
                        if kind.is_none() {
                            self.problem(ExpressionError::UnknownType(beginning(name)));
                        }
                    }
                    other => {
                        let found = other.kind().name();
                        self.problem(ExpressionError::OperandType { operator: NAME, found });
                    }
                },
                other => {
                    let found = known_type(other).map_or(ANY_TYPE, AttributeType::name);
                    self.problem(ExpressionError::OperandType { operator: NAME, found });
                }
            }
            path = self.required_path(NAME, operand);
        }
        Parsed::Function(ItemCondition::IsOfType { path, kind: kind.unwrap_or(AttributeType::Null) }, NAME)
    }

    pub(super) fn begins_with(&mut self, operands: Vec<Operand>) -> Parsed {
        const NAME: &str = "begins_with";
        let [operand, prefix] = self.counted(NAME, operands).unwrap_or_else(stand_ins);
        self.check_types(NAME, &[&operand, &prefix], |kind| {
            matches!(kind, AttributeType::S | AttributeType::B)
        });
        self.check_distinct(NAME, &operand, &[&prefix]);
        Parsed::Function(ItemCondition::BeginsWith { operand, prefix }, NAME)
    }

    pub(super) fn contains(&mut self, operands: Vec<Operand>) -> Parsed {
        const NAME: &str = "contains";
        let [operand, sought] = self.counted(NAME, operands).unwrap_or_else(stand_ins);
        self.check_distinct(NAME, &operand, &[&sought]);
        Parsed::Function(ItemCondition::Contains { operand, sought }, NAME)
    }
}

fn known_type(operand: &Operand) -> Option<AttributeType> {
    match operand {
        Operand::Path(_) => None,
        Operand::Value(value) => Some(value.kind()),
        Operand::Size(_) | Operand::SizeOfValue(_) => Some(AttributeType::N),
    }
}

/// A bound as AWS shows it in an error.
fn shown(value: &AttributeValue) -> String {
    match value {
        AttributeValue::S(text) => beginning(text),
        other => beginning(&other.to_plain()),
    }
}

/// As much of a text as an error shows, whole characters only.
fn beginning(text: &str) -> String {
    let ends = text.char_indices().map(|(at, character)| at + character.len_utf8());
    text[..ends.take_while(|end| *end <= SHOWN_BYTES_MAX).last().unwrap_or(0)].to_owned()
}

fn stand_in_path() -> DocumentPath {
    DocumentPath::attribute("")
}

fn stand_in_size() -> Operand {
    Operand::Size(stand_in_path())
}

fn stand_ins() -> [Operand; 2] {
    [stand_in_operand(), stand_in_operand()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    use crate::dynamodb::expression::fixture::{error_of, placeholders_of};

    /// `:1` and `:2` are numbers, `:s` and `:t` texts, `:l` a list, `:yes` a boolean, `#a` is `a`, `#view` is `view`.
    #[test]
    fn what_aws_refuses_is_refused_with_its_words() {
        for (text, expected) in [
            ("a=a and a > ((views))", "The expression has redundant parentheses;"),
            ("a > whatever((:1), ((a)))", "The expression has redundant parentheses;"),
            ("a=b and whatever((:none)) > a", "Invalid function name; function: whatever"),
            ("attRIbute_exIsts((views), #a)", "Invalid function name; function: attRIbute_exIsts"),
            (
                "attribute_exists(views, #none)",
                "Attribute name is a reserved keyword; reserved keyword: views",
            ),
            (":1 < abOrT", "Attribute name is a reserved keyword; reserved keyword: abOrT"),
            ("a.name = :1", "Attribute name is a reserved keyword; reserved keyword: name"),
            (
                "(#P between :lo and :hi) and (#PC in (:cat1, :cat2))",
                "An expression attribute name used in the document path is not defined; attribute name: #P",
            ),
            (
                "begins_with(:hello, #a, #b)",
                "An expression attribute value used in expression is not defined; attribute value: :hello",
            ),
            (
                "attribute_type(a, :t)",
                "Invalid attribute type name found; type: b, valid types: {B,NULL,SS,BOOL,L,BS,N,NS,S,M}",
            ),
            (
                "a BETWEEN :1 AND :s",
                "The BETWEEN operator requires same data type for lower and upper bounds; lower bound operand: \
                 AttributeValue: {N:1}, upper bound operand: AttributeValue: {S:a}",
            ),
            (
                "a BETWEEN :t AND :s",
                "The BETWEEN operator requires upper bound to be greater than or equal to lower bound; lower bound \
                 operand: AttributeValue: {S:b}, upper bound operand: AttributeValue: {S:a}",
            ),
        ] {
            assert_eq!(error_of(text).to_string(), expected, "{text}");
        }
    }

    #[test]
    fn an_error_shows_the_beginning_of_what_is_long() {
        let long = "é".repeat(30_000);
        let names = json!({"#a": long.as_str()});
        let values =
            json!({":x": {"S": long.as_str()}, ":y": {"N": "1"}, ":l": {"B": "AAAA".repeat(10_000)}});
        for text in [
            "a BETWEEN :x AND :y",
            "a BETWEEN :y AND :l",
            "attribute_type(a, :x)",
            "#a.#a.#a = #a.#a.#a",
            "contains(#a, #a)",
        ] {
            let text = vec![text; 40].join(" OR ");
            let error = ItemCondition::parse(&text, &mut placeholders_of(&names, &values)).unwrap_err();
            let bytes = error.to_string().len();
            assert!(bytes < 2 * SHOWN_BYTES_MAX + 256, "{bytes} bytes for {}", &text[..20]);
        }
    }

    /// Of one kind the first is reported, however many there are of a kind that is reported later.
    #[test]
    fn of_all_that_is_wrong_the_first_of_the_first_kind_is_reported() {
        for (text, expected) in [
            ("a = :none OR b = :other", ExpressionError::UndefinedValue(":none".into())),
            ("a = :none OR status = :other OR view = :1", ExpressionError::Reserved("status".into())),
            (
                "a = :none OR status = :1 OR what(a) OR who(a)",
                ExpressionError::UnknownFunction("what".into()),
            ),
            ("a = :none OR #none = :1", ExpressionError::UndefinedValue(":none".into())),
            ("#none = :none", ExpressionError::UndefinedName("#none".into())),
        ] {
            assert_eq!(error_of(text), expected, "{text}");
        }
    }

    #[test]
    fn functions_stand_where_they_may_with_the_operands_they_want() {
        for (text, function) in [
            ("a=b and attribute_exists((views), (#none)) > b", "attribute_exists"),
            ("attribute_not_exists(things) > b", "attribute_not_exists"),
            ("attribute_type(things, :1) > b", "attribute_type"),
            ("begins_with(things, a) > b", "begins_with"),
            ("size(contains(a, b)) > a", "contains"),
            ("size(things)", "size"),
            ("NOT size(things)", "size"),
            ("a between b and attribute_exists(things)", "attribute_exists"),
            ("a in (b, attribute_exists(things))", "attribute_exists"),
        ] {
            assert_eq!(error_of(text), ExpressionError::FunctionMisplaced(function.to_owned()), "{text}");
        }
        for (text, function, count) in [
            ("attribute_exists(things, a) and a=a", "attribute_exists", 2),
            ("attribute_type(things)", "attribute_type", 1),
            ("begins_with(things, size(a), b)", "begins_with", 3),
            ("contains(things)", "contains", 1),
            ("size(things, a) > b", "size", 2),
        ] {
            assert_eq!(error_of(text), ExpressionError::OperandCount { function, count }, "{text}");
        }
        for (text, operator, found) in [
            ("attribute_type(a, size(a)) and a=a", "attribute_type", "N"),
            ("attribute_type(a, :1)", "attribute_type", "N"),
            ("attribute_type(a, b)", "attribute_type", ANY_TYPE),
            ("begins_with(a, :1)", "begins_with", "N"),
            ("begins_with(:l, a)", "begins_with", "L"),
            ("begins_with(a, size(a))", "begins_with", "N"),
            ("size(size(a)) > :1", "size", "N"),
            ("attribute_not_exists(size(:1))", "size", "N"),
            ("size(:yes) > a", "size", "BOOL"),
            ("a < :l", "<", "L"),
            (":yes >= a", ">=", "BOOL"),
            ("a BETWEEN :l AND :l", "BETWEEN", "L"),
        ] {
            assert_eq!(error_of(text), ExpressionError::OperandType { operator, found }, "{text}");
        }
        for (text, function) in [
            ("attribute_exists(:1) and a=a", "attribute_exists"),
            ("attribute_not_exists(size(:s))", "attribute_not_exists"),
            ("attribute_exists(size(a))", "attribute_exists"),
        ] {
            assert_eq!(error_of(text), ExpressionError::PathRequired(function), "{text}");
        }
        for (text, operator, operand) in [
            ("a = a AND #a = b AND :none > a", "=", "[a]"),
            ("#a <> a", "<>", "[a]"),
            ("((a=a) OR (a=a))", "=", "[a]"),
            ("a IN (b, #a)", "IN", "[a]"),
            ("contains(ab.bc[1].a, ab.bc[1].#a)", "contains", "[ab, bc, [1], a]"),
            ("begins_with(ab.bc[1].a, ab.bc[1].#a)", "begins_with", "[ab, bc, [1], a]"),
        ] {
            let expected = ExpressionError::SameOperands { operator, operand: operand.to_owned() };
            assert_eq!(error_of(text), expected, "{text}");
        }
    }
}
