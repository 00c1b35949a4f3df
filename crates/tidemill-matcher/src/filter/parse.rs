//! Reading rules: all problems are reported at once, each with its place.

use serde_json::{Map, Value};

use super::field_path::FieldPath;
use super::operator::Operator;
use super::rules::{Condition, FilterRules, Logic, Rule, RuleGroup};
use tidemill_model::authored::document::kind;
use tidemill_model::authored::field_problem::FieldProblems;
use tidemill_model::authored::nearest::unknown_field;
use tidemill_model::work::runner_spec::entry_path;

/// The code of every problem with rules.
pub const INVALID_FILTER: &str = "INVALID_FILTER";
/// How many conditions rules may have in all.
pub const CONDITIONS_MAX: usize = 50;
/// How many groups may stand within each other, the outermost counted.
pub const GROUP_DEPTH_MAX: usize = 5;
/// How many values the list of `in` or `nin` may have.
pub const LIST_MAX: usize = 100;
/// How long a text may be, and a field's path.
pub const TEXT_BYTES_MAX: usize = 1024;
/// How long rules may be as JSON, also when they are written out. A full list of long texts fits.
pub const FILTER_BYTES_MAX: usize = 128 * 1024;

/// The field of a subscription that holds its rules.
const PLACE: &str = "filterRules";

impl FilterRules {
    /// Reads rules as a client wrote them. Every problem has the code [`INVALID_FILTER`] and a place below
    /// `filterRules`.
    pub fn parse(value: &Value) -> Result<Self, FieldProblems> {
        within_size(value)?;
        let mut problems = FieldProblems::default();
        let mut reader = Reader { problems: &mut problems, conditions: 0 };
        let root = reader.read(value);
        let count = reader.conditions;
        if count > CONDITIONS_MAX {
            reader.problem(PLACE, format!("has {count} conditions; the limit is {CONDITIONS_MAX}"));
        }
        let root = root.filter(|group| !group.rules.is_empty());
        let rules = problems.or(root.map_or_else(Self::all, |root| Self { root }))?;
        // Written out they are longer, and that form must be readable too.
        within_size(&rules.to_json())?;
        Ok(rules)
    }
}

fn within_size(rules: &Value) -> Result<(), FieldProblems> {
    let bytes = rules.to_string().len();
    if bytes <= FILTER_BYTES_MAX {
        return Ok(());
    }
    let message = format!("is {bytes} bytes as JSON; the limit is {FILTER_BYTES_MAX}");
    Err(FieldProblems::one(PLACE, INVALID_FILTER, message))
}

struct Reader<'p> {
    problems: &'p mut FieldProblems,
    /// How many conditions were seen, the wrong ones too.
    conditions: usize,
}

impl Reader<'_> {
    fn problem(&mut self, place: impl Into<String>, message: impl Into<String>) {
        self.problems.add(place, INVALID_FILTER, message);
    }

    fn read(&mut self, value: &Value) -> Option<RuleGroup> {
        match value {
            Value::Null => None,
            Value::Object(fields) if is_group(fields) => self.group(PLACE, fields, 1),
            Value::Object(fields) => {
                Some(RuleGroup { logic: Logic::And, rules: self.entries(PLACE, fields, Logic::And, 1) })
            }
            other => {
                self.problem(PLACE, format!("must be an object or null, not {}", kind(other)));
                None
            }
        }
    }

    fn group(&mut self, place: &str, fields: &Map<String, Value>, depth: usize) -> Option<RuleGroup> {
        if !self.within_depth(place, depth) {
            return None;
        }
        let logic = match fields.get("logic") {
            None | Some(Value::Null) => Logic::And,
            Some(Value::String(text)) if text == "AND" => Logic::And,
            Some(Value::String(text)) if text == "OR" => Logic::Or,
            Some(other) => {
                let shown = if other.is_string() { "another text" } else { kind(other) };
                self.problem(format!("{place}.logic"), format!("must be `AND` or `OR`, not {shown}"));
                Logic::And
            }
        };
        let inside = format!("{place}.conditions");
        let rules = match fields.get("conditions") {
            Some(Value::Object(entries)) => self.entries(&inside, entries, logic, depth),
            Some(Value::Array(items)) => self.items(&inside, items, depth),
            None | Some(Value::Null) => {
                self.problem(inside, "is missing: an object or a list of conditions");
                Vec::new()
            }
            Some(other) => {
                self.problem(inside, format!("must be an object or a list, not {}", kind(other)));
                Vec::new()
            }
        };
        self.only(place, fields, &["logic", "conditions"]);
        Some(RuleGroup { logic, rules })
    }

    /// Conditions by field: a plain value is `eq`, an object holds operators, which must all hold.
    fn entries(&mut self, place: &str, fields: &Map<String, Value>, logic: Logic, depth: usize) -> Vec<Rule> {
        let mut rules = Vec::new();
        for (name, expected) in fields {
            let place = entry_path(place, name);
            let field = match FieldPath::parse(name) {
                Ok(field) => field,
                Err(message) => {
                    self.conditions += 1;
                    self.problem(place, message);
                    continue;
                }
            };
            let Value::Object(operators) = expected else {
                rules.extend(self.condition(&place, field, Operator::Eq, expected).map(Rule::Condition));
                continue;
            };
            let together = self.operators(&place, &field, operators);
            if together.len() > 1 && logic == Logic::Or {
                if self.within_depth(&place, depth + 1) {
                    rules.push(Rule::Group(RuleGroup { logic: Logic::And, rules: together }));
                }
            } else {
                rules.extend(together);
            }
        }
        rules
    }

    fn operators(&mut self, place: &str, field: &FieldPath, operators: &Map<String, Value>) -> Vec<Rule> {
        if operators.is_empty() {
            self.problem(place, "names no operator, such as `{\"gte\": 18}`");
        }
        let mut rules = Vec::new();
        for (name, value) in operators {
            let place = entry_path(place, name);
            if let Some(operator) = Operator::from_name(name) {
                rules.extend(self.condition(&place, field.clone(), operator, value).map(Rule::Condition));
            } else {
                self.conditions += 1;
                let hint = "; to compare with a whole object write `{\"eq\": {…}}`";
                self.problem(place, format!("{}{hint}", unknown_operator()));
            }
        }
        rules
    }

    fn items(&mut self, place: &str, items: &[Value], depth: usize) -> Vec<Rule> {
        let mut rules = Vec::new();
        for (at, item) in items.iter().enumerate() {
            let place = format!("{place}[{at}]");
            match item {
                Value::Object(fields) if is_group(fields) => {
                    rules.extend(self.group(&place, fields, depth + 1).map(Rule::Group));
                }
                Value::Object(fields) => {
                    rules.extend(self.written_out(&place, fields).map(Rule::Condition));
                }
                other => self.problem(
                    place,
                    format!(
                        "must be an object with `field`, `op` and `value` or a group, not {}",
                        kind(other)
                    ),
                ),
            }
        }
        rules
    }

    /// `{"field", "op", "value"}`
    fn written_out(&mut self, place: &str, fields: &Map<String, Value>) -> Option<Condition> {
        let field = self.text(place, fields, "field").and_then(|text| {
            FieldPath::parse(text).map_err(|message| self.problem(format!("{place}.field"), message)).ok()
        });
        let operator = self.text(place, fields, "op").and_then(|text| {
            let known = Operator::from_name(text);
            if known.is_none() {
                self.problem(format!("{place}.op"), unknown_operator());
            }
            known
        });
        self.only(place, fields, &["field", "op", "value"]);
        let Some(value) = fields.get("value") else {
            self.conditions += 1;
            self.problem(format!("{place}.value"), "is missing");
            return None;
        };
        let (Some(field), Some(operator)) = (field, operator) else {
            self.conditions += 1;
            return None;
        };
        self.condition(&format!("{place}.value"), field, operator, value)
    }

    fn text<'v>(&mut self, place: &str, fields: &'v Map<String, Value>, name: &str) -> Option<&'v str> {
        match fields.get(name) {
            Some(Value::String(text)) => Some(text),
            None => {
                self.problem(format!("{place}.{name}"), "is missing");
                None
            }
            Some(other) => {
                self.problem(format!("{place}.{name}"), format!("must be a text, not {}", kind(other)));
                None
            }
        }
    }

    fn condition(
        &mut self,
        place: &str,
        field: FieldPath,
        operator: Operator,
        value: &Value,
    ) -> Option<Condition> {
        self.conditions += 1;
        let before = self.problems.total;
        match (operator, value) {
            (
                Operator::Gt | Operator::Gte | Operator::Lt | Operator::Lte,
                Value::Number(_) | Value::String(_),
            )
            | (Operator::StartsWith | Operator::EndsWith, Value::String(_))
            | (Operator::Exists, Value::Bool(_))
            | (Operator::Eq | Operator::Ne | Operator::Contains, _) => {}
            (Operator::In | Operator::Nin, Value::Array(items)) => {
                if items.is_empty() {
                    self.problem(place, "is an empty list");
                } else if items.len() > LIST_MAX {
                    self.problem(place, format!("has {} values; the limit is {LIST_MAX}", items.len()));
                }
            }
            (_, other) => {
                let wanted = match operator {
                    Operator::In | Operator::Nin => "a list",
                    Operator::StartsWith | Operator::EndsWith => "a text",
                    Operator::Exists => "true or false",
                    _ => "a number or a text",
                };
                self.problem(place, format!("must be {wanted} for `{operator}`, not {}", kind(other)));
            }
        }
        if let Some(length) = longest_text(value).filter(|length| *length > TEXT_BYTES_MAX) {
            self.problem(place, format!("holds a text of {length} bytes; the limit is {TEXT_BYTES_MAX}"));
        }
        (self.problems.total == before).then(|| Condition { field, operator, value: value.clone() })
    }

    fn within_depth(&mut self, place: &str, depth: usize) -> bool {
        if depth > GROUP_DEPTH_MAX {
            self.problem(
                place,
                format!("is group {depth} within the others; the limit is {GROUP_DEPTH_MAX}"),
            );
        }
        depth <= GROUP_DEPTH_MAX
    }

    fn only(&mut self, place: &str, fields: &Map<String, Value>, known: &[&str]) {
        for name in fields.keys().filter(|name| !known.contains(&name.as_str())) {
            self.problem(entry_path(place, name), unknown_field(name, known.iter().copied()));
        }
    }
}

fn is_group(fields: &Map<String, Value>) -> bool {
    fields.contains_key("conditions") || fields.contains_key("logic")
}

fn unknown_operator() -> String {
    let names: Vec<&str> = Operator::ALL.into_iter().map(Operator::name).collect();
    format!("is not an operator; known are {}", names.join(", "))
}

/// The bytes of the longest text in a value, names of fields included.
fn longest_text(value: &Value) -> Option<usize> {
    match value {
        Value::String(text) => Some(text.len()),
        Value::Array(items) => items.iter().filter_map(longest_text).max(),
        Value::Object(fields) => {
            fields.iter().filter_map(|(name, value)| Some(name.len()).max(longest_text(value))).max()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problems(value: &Value) -> Vec<(String, String)> {
        let told = FilterRules::parse(value).expect_err(&format!("{value} is accepted"));
        assert!(told.listed.iter().all(|problem| problem.code == INVALID_FILTER));
        told.listed.into_iter().map(|problem| (problem.path, problem.message)).collect()
    }

    #[test]
    fn se_04_what_is_not_a_rule_is_refused_with_its_place() {
        for (rules, place, message) in [
            (json!(1), "filterRules", "must be an object or null, not a number"),
            (json!([]), "filterRules", "not a list"),
            (json!("role"), "filterRules", "not a text"),
            (json!({"": 1}), "filterRules.", "is an empty field"),
            (json!({"a": {}}), "filterRules.a", "names no operator"),
            (json!({"a": {"$gt": 1}}), "filterRules.a.$gt", "is not an operator"),
            (json!({"a": {"$where": "sleep(1)"}}), "filterRules.a.$where", "is not an operator"),
            (json!({"a": {"regex": ".*"}}), "filterRules.a.regex", "is not an operator"),
            (json!({"a": {"GT": 1}}), "filterRules.a.GT", "is not an operator"),
            (json!({"user": {"age": 18}}), "filterRules.user.age", "write `{\"eq\": {…}}`"),
            (json!({"__proto__": 1}), "filterRules.__proto__", "forbidden name"),
            (json!({"a.constructor.b": 1}), "filterRules.a.constructor.b", "forbidden name"),
            (
                json!({"a": {"gt": true}}),
                "filterRules.a.gt",
                "must be a number or a text for `gt`, not a boolean",
            ),
            (json!({"a": {"lt": null}}), "filterRules.a.lt", "not null"),
            (json!({"a": {"in": "x"}}), "filterRules.a.in", "must be a list for `in`, not a text"),
            (json!({"a": {"in": []}}), "filterRules.a.in", "is an empty list"),
            (json!({"a": {"nin": vec![0; 101]}}), "filterRules.a.nin", "has 101 values; the limit is 100"),
            (json!({"a": {"startsWith": 1}}), "filterRules.a.startsWith", "must be a text"),
            (json!({"a": {"exists": "yes"}}), "filterRules.a.exists", "must be true or false"),
            (json!({"a": "x".repeat(1025)}), "filterRules.a", "1025 bytes; the limit is 1024"),
            (json!({"a": {"eq": {"b": ["x".repeat(1025)]}}}), "filterRules.a.eq", "1025 bytes"),
            (json!({"logic": "AND"}), "filterRules.conditions", "is missing"),
            (json!({"logic": "XOR", "conditions": {}}), "filterRules.logic", "must be `AND` or `OR`"),
            (json!({"logic": "and", "conditions": {}}), "filterRules.logic", "must be `AND` or `OR`"),
            (json!({"logic": 1, "conditions": {}}), "filterRules.logic", "not a number"),
            (json!({"conditions": "a"}), "filterRules.conditions", "must be an object or a list, not a text"),
            (json!({"conditions": {}, "role": "admin"}), "filterRules.role", "unknown field; "),
            (json!({"conditions": [1]}), "filterRules.conditions[0]", "or a group, not a number"),
            (
                json!({"conditions": [{"field": "a", "op": "eq"}]}),
                "filterRules.conditions[0].value",
                "is missing",
            ),
            (
                json!({"conditions": [{"field": "a", "op": "eq", "value": 1, "not": true}]}),
                "filterRules.conditions[0].not",
                "unknown field; ",
            ),
            (
                json!({"conditions": [{"field": "a", "op": "eq", "value": 1}, {"conditions": [
                    {"field": "a", "op": "like", "value": 1}]}]}),
                "filterRules.conditions[1].conditions[0].op",
                "is not an operator",
            ),
            (
                json!({"conditions": [{"field": 1, "op": "eq", "value": 1}]}),
                "filterRules.conditions[0].field",
                "must be a text",
            ),
        ] {
            let told = problems(&rules);
            assert_eq!(told.len(), 1, "{rules}: {told:?}");
            assert!(told[0].0 == place && told[0].1.contains(message), "{rules}: {told:?}");
        }
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let told = problems(&json!({"logic": "NOT", "conditions": [
            {"field": "a..b", "op": "gte", "value": 1},
            {"field": "a", "op": "matches", "value": 1},
            {"op": "in"},
        ], "extra": 1}));
        let places: Vec<&str> = told.iter().map(|(place, _)| place.as_str()).collect();
        assert_eq!(
            places,
            [
                "filterRules.logic",
                "filterRules.conditions[0].field",
                "filterRules.conditions[1].op",
                "filterRules.conditions[2].field",
                "filterRules.conditions[2].value",
                "filterRules.extra",
            ]
        );
    }

    #[test]
    fn the_limits_are_reached_and_not_passed() {
        let fields = |count: usize| -> Value { (0..count).map(|at| (format!("f{at}"), json!(at))).collect() };
        assert_eq!(FilterRules::parse(&fields(50)).unwrap().conditions(), 50);
        assert_eq!(problems(&fields(51))[0].1, "has 51 conditions; the limit is 50");

        let nested = |depth: usize| {
            (1..depth).fold(json!({"conditions": {"a": 1}}), |inner, _| json!({"conditions": [inner]}))
        };
        assert!(FilterRules::parse(&nested(5)).is_ok());
        assert!(problems(&nested(6))[0].1.contains("is group 6 within the others; the limit is 5"));

        // Several operators under one field of an OR are a group.
        let mut deep = json!({"logic": "OR", "conditions": {"a": {"gt": 1, "lt": 5}}});
        for _ in 1..4 {
            deep = json!({"conditions": [deep]});
        }
        assert!(FilterRules::parse(&deep).is_ok());
        assert!(problems(&json!({"conditions": [deep]}))[0].1.contains("is group 6"));

        let long: Vec<String> = (0..100).map(|at| format!("{at:0>1024}")).collect();
        assert!(FilterRules::parse(&json!({"a": {"in": long}})).is_ok());
        let told = problems(&json!({"a": {"in": long}, "b": {"in": long}}));
        assert!(told[0].1.contains("bytes as JSON; the limit is 131072"), "{told:?}");
    }

    #[test]
    fn written_out_rules_read_the_same() {
        for rules in [
            json!(null),
            json!({"role": "admin", "user.age": {"gte": 18, "lt": 65}, "tags": ["a"], "gone": null}),
            json!({"logic": "OR", "conditions": {"a": {"gte": 1, "lt": 5}, "b": {"eq": {"c": 1.0}}}}),
            json!({"conditions": [{"field": "a", "op": "in", "value": [1, "1", null]},
                {"logic": "OR", "conditions": []},
                {"logic": "OR", "conditions": [{"field": "a", "op": "in", "value": [2]}]}]}),
        ] {
            let read = FilterRules::parse(&rules).unwrap();
            let again = FilterRules::parse(&read.to_json()).unwrap();
            assert_eq!(again, read);
            assert_eq!(again.to_json(), read.to_json());
        }
    }
}
