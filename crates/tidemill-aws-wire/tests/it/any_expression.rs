//! Whatever a client sends is a condition or an error, and what a condition says does not depend on how it was written.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use tidemill_aws_wire::dynamodb::expression::{
    Comparator, DocumentPath, ItemCondition, ItemProjection, Operand, PathStep, Placeholders,
};
use tidemill_aws_wire::dynamodb::{
    AttributeType, AttributeValue, DecimalNumber, Item, item_from_json, item_to_json,
};

/// Few names, so that paths find something. One of them is reserved, and one has a dot.
const NAMES: [&str; 4] = ["a", "b", "status", "a.b"];

fn name() -> impl Strategy<Value = String> {
    prop::sample::select(&NAMES[..]).prop_map(str::to_owned)
}

fn number() -> impl Strategy<Value = DecimalNumber> {
    "-?[0-9]{1,3}(\\.[0-9]{1,2})?(e-?[0-9])?".prop_map(|text| text.parse().unwrap())
}

fn value() -> impl Strategy<Value = AttributeValue> {
    let leaf = prop_oneof![
        "[ab]{0,3}".prop_map(AttributeValue::S),
        number().prop_map(AttributeValue::N),
        vec(any::<u8>(), 0..3).prop_map(AttributeValue::B),
        any::<bool>().prop_map(AttributeValue::Bool),
        Just(AttributeValue::Null),
        btree_set("[ab]{0,2}", 1..3).prop_map(AttributeValue::Ss),
        btree_set(number(), 1..3).prop_map(AttributeValue::Ns),
        btree_set(vec(any::<u8>(), 0..2), 1..3).prop_map(AttributeValue::Bs),
    ];
    leaf.prop_recursive(3, 12, 3, |within| {
        prop_oneof![
            vec(within.clone(), 0..3).prop_map(AttributeValue::L),
            btree_map(name(), within, 0..3).prop_map(AttributeValue::M),
        ]
    })
}

fn item() -> impl Strategy<Value = Item> {
    btree_map(name(), value(), 0..4)
}

fn path() -> impl Strategy<Value = DocumentPath> {
    let step = prop_oneof![
        name().prop_map(|name| PathStep::Field(name.into())),
        (0_usize..3).prop_map(PathStep::Place)
    ];
    (name(), vec(step, 0..3))
        .prop_map(|(attribute, steps)| DocumentPath { attribute: attribute.into(), steps })
}

fn operand() -> impl Strategy<Value = Operand> {
    let value = || value().prop_map(Arc::new);
    prop_oneof![
        path().prop_map(Operand::Path),
        value().prop_map(Operand::Value),
        path().prop_map(Operand::Size),
        value().prop_map(Operand::SizeOfValue),
    ]
}

/// Conditions of any shape. Some of them are refused, such as those that compare a path with itself.
fn condition() -> impl Strategy<Value = ItemCondition> {
    let comparator = prop::sample::select(&Comparator::ALL[..]);
    let kind = prop::sample::select(&AttributeType::ALL[..]);
    let leaf = prop_oneof![
        (operand(), comparator, operand()).prop_map(|(left, comparator, right)| ItemCondition::Compare {
            left,
            comparator,
            right
        }),
        (operand(), operand(), operand()).prop_map(|(operand, lower, upper)| ItemCondition::Between {
            operand,
            lower,
            upper
        }),
        (operand(), vec(operand(), 1..3))
            .prop_map(|(operand, candidates)| ItemCondition::In { operand, candidates }),
        path().prop_map(ItemCondition::Exists),
        path().prop_map(ItemCondition::NotExists),
        (path(), kind).prop_map(|(path, kind)| ItemCondition::IsOfType { path, kind }),
        (operand(), operand()).prop_map(|(operand, prefix)| ItemCondition::BeginsWith { operand, prefix }),
        (operand(), operand()).prop_map(|(operand, sought)| ItemCondition::Contains { operand, sought }),
    ];
    leaf.prop_recursive(4, 16, 3, |within| {
        prop_oneof![
            vec(within.clone(), 2..4).prop_map(ItemCondition::And),
            vec(within.clone(), 2..4).prop_map(ItemCondition::Or),
            within.prop_map(|condition| ItemCondition::Not(Box::new(condition))),
        ]
    })
}

/// Writes a condition with a placeholder for every name and value.
#[derive(Default)]
struct Printer {
    names: BTreeMap<String, String>,
    values: BTreeMap<String, AttributeValue>,
}

impl Printer {
    fn print(condition: &ItemCondition) -> (String, Placeholders) {
        let mut printer = Self::default();
        let text = printer.condition(condition);
        let names = (!printer.names.is_empty()).then_some(printer.names);
        let values = (!printer.values.is_empty()).then_some(printer.values);
        (text, Placeholders::new(names, values).unwrap())
    }

    fn condition(&mut self, condition: &ItemCondition) -> String {
        match condition {
            ItemCondition::And(all) => self.joined(all, " AND "),
            ItemCondition::Or(any) => self.joined(any, " or "),
            ItemCondition::Not(condition) => format!("NOT {}", self.part(condition)),
            ItemCondition::Compare { left, comparator, right } => {
                format!("{}{}{}", self.operand(left), comparator.sign(), self.operand(right))
            }
            ItemCondition::Between { operand, lower, upper } => {
                let (operand, lower) = (self.operand(operand), self.operand(lower));
                format!("{operand} BETWEEN {lower} AND {}", self.operand(upper))
            }
            ItemCondition::In { operand, candidates } => {
                let operand = self.operand(operand);
                let candidates: Vec<_> = candidates.iter().map(|candidate| self.operand(candidate)).collect();
                format!("{operand} IN ({})", candidates.join(", "))
            }
            ItemCondition::Constant(holds) => {
                let sign = if *holds { "=" } else { "<>" };
                format!("{}{sign}{}", self.value(&AttributeValue::Null), self.value(&AttributeValue::Null))
            }
            ItemCondition::Exists(path) => format!("attribute_exists({})", self.path(path)),
            ItemCondition::NotExists(path) => format!("attribute_not_exists({})", self.path(path)),
            ItemCondition::IsOfType { path, kind } => {
                let path = self.path(path);
                format!("attribute_type({path}, {})", self.value(&AttributeValue::text(kind.name())))
            }
            ItemCondition::BeginsWith { operand, prefix } => {
                format!("begins_with({}, {})", self.operand(operand), self.operand(prefix))
            }
            ItemCondition::Contains { operand, sought } => {
                format!("contains({}, {})", self.operand(operand), self.operand(sought))
            }
        }
    }

    fn joined(&mut self, parts: &[ItemCondition], operator: &str) -> String {
        parts.iter().map(|part| self.part(part)).collect::<Vec<_>>().join(operator)
    }

    fn part(&mut self, condition: &ItemCondition) -> String {
        format!("({})", self.condition(condition))
    }

    fn operand(&mut self, operand: &Operand) -> String {
        match operand {
            Operand::Path(path) => self.path(path),
            Operand::Value(value) => self.value(value),
            Operand::Size(path) => format!("size({})", self.path(path)),
            Operand::SizeOfValue(value) => format!("size({})", self.value(value)),
        }
    }

    fn value(&mut self, value: &AttributeValue) -> String {
        let key = format!(":v{}", self.values.len());
        self.values.insert(key.clone(), value.clone());
        key
    }

    fn path(&mut self, path: &DocumentPath) -> String {
        let mut text = self.name(&path.attribute);
        for step in &path.steps {
            match step {
                PathStep::Field(name) => text = format!("{text}.{}", self.name(name)),
                PathStep::Place(place) => text = format!("{text}[{place}]"),
            }
        }
        text
    }

    fn name(&mut self, name: &str) -> String {
        let key = format!("#n{}", self.names.len());
        self.names.insert(key.clone(), name.to_owned());
        key
    }
}

/// Texts of the parts of expressions, in any order.
fn nearly_an_expression() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "a",
        "b",
        "#n",
        "#m",
        ":v",
        ":w",
        ".",
        "[0]",
        "[",
        "]",
        "(",
        ")",
        ",",
        "=",
        "<>",
        "<",
        ">=",
        "AND",
        "OR",
        "NOT",
        "BETWEEN",
        "IN",
        "size(",
        "contains(",
        "attribute_exists(",
        "begins_with(",
        "attribute_type(",
        "7",
        "status",
        "ü",
    ]);
    vec(part, 0..24).prop_map(|parts| parts.join(" "))
}

proptest! {
    #[test]
    fn a_printed_condition_reads_back_as_what_it_says(condition in condition(), item in item()) {
        let (text, mut placeholders) = Printer::print(&condition);
        let Ok(read) = ItemCondition::parse(&text, &mut placeholders) else { return Ok(()) };
        prop_assert_eq!(read.holds(&item), condition.holds(&item), "{}", text);
        prop_assert!(placeholders.all_used().is_ok());
        prop_assert_eq!(read.clone().with_constants_judged().holds(&item), read.holds(&item), "{}", text);
        let (again, mut placeholders) = Printer::print(&read);
        prop_assert_eq!(ItemCondition::parse(&again, &mut placeholders), Ok(read), "{}", again);
    }

    #[test]
    fn any_text_is_a_condition_or_an_error(
        text in prop_oneof![nearly_an_expression(), ".{0,60}"],
        value in value(),
        item in item(),
    ) {
        let names = BTreeMap::from([("#n".to_owned(), "a".to_owned())]);
        let values = BTreeMap::from([(":v".to_owned(), value)]);
        let mut placeholders = Placeholders::new(Some(names), Some(values)).unwrap();
        if let Ok(condition) = ItemCondition::parse(&text, &mut placeholders) {
            condition.holds(&item);
        }
        if let Ok(projection) = ItemProjection::parse(&text, &mut placeholders) {
            let part = projection.apply(&item);
            prop_assert!(part.keys().all(|name| item.contains_key(name)));
        }
    }

    #[test]
    fn an_item_reads_back_from_its_json(item in item()) {
        prop_assert_eq!(item_from_json(&item_to_json(&item)), Ok(item));
    }
}
