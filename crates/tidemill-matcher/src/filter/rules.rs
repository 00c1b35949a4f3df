//! Rules as they were read, and the plain way to try them.

use serde::{Serialize, Serializer};
use serde_json::{Value, json};

use super::field_path::FieldPath;
use super::operator::Operator;

/// The checked rules of one subscription. Without conditions they match every event.
#[derive(Debug, Clone, PartialEq)]
pub struct FilterRules {
    pub(super) root: RuleGroup,
}

/// Rules joined by `AND` or `OR`. A group without rules matches.
#[derive(Debug, Clone, PartialEq)]
pub struct RuleGroup {
    pub logic: Logic,
    pub rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Rule {
    Condition(Condition),
    Group(RuleGroup),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Logic {
    And,
    Or,
}

/// One comparison.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    pub field: FieldPath,
    pub operator: Operator,
    pub value: Value,
}

/// How one condition fared with one event.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConditionResult<'r> {
    /// Where the condition stands in the written-out form of the rules, such as `conditions[1].conditions[0]`.
    pub place: String,
    /// The field.
    pub path: &'r str,
    pub op: Operator,
    pub value: &'r Value,
    /// What the event has there; none if the field is missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actual: Option<&'r Value>,
    pub passed: bool,
}

impl FilterRules {
    /// Rules that every event passes.
    pub fn all() -> Self {
        Self { root: RuleGroup { logic: Logic::And, rules: Vec::new() } }
    }

    pub fn root(&self) -> &RuleGroup {
        &self.root
    }

    /// Whether there is no condition to fail.
    pub fn is_all(&self) -> bool {
        self.root.rules.is_empty()
    }

    /// How many conditions there are.
    pub fn conditions(&self) -> usize {
        self.root.conditions()
    }

    /// Whether an event with this data passes: every condition is looked at until the answer is known.
    pub fn matches(&self, data: &Value) -> bool {
        self.root.matches(data)
    }

    /// Every condition with what the event has in its place, in the order of the rules.
    pub fn explain<'r>(&'r self, data: &'r Value) -> Vec<ConditionResult<'r>> {
        let mut results = Vec::new();
        self.root.explain("", data, &mut results);
        results
    }

    /// The rules written out: null, or groups with lists of conditions. Reading it gives the same rules again.
    pub fn to_json(&self) -> Value {
        if self.is_all() { Value::Null } else { self.root.to_json() }
    }
}

impl Serialize for FilterRules {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.to_json().serialize(serializer)
    }
}

impl RuleGroup {
    fn matches(&self, data: &Value) -> bool {
        let passes = |rule: &Rule| match rule {
            Rule::Condition(condition) => condition.holds(data),
            Rule::Group(group) => group.matches(data),
        };
        match self.logic {
            Logic::And => self.rules.iter().all(passes),
            Logic::Or => self.rules.is_empty() || self.rules.iter().any(passes),
        }
    }

    fn conditions(&self) -> usize {
        let count = |rule: &Rule| match rule {
            Rule::Condition(_) => 1,
            Rule::Group(group) => group.conditions(),
        };
        self.rules.iter().map(count).sum()
    }

    fn explain<'r>(&'r self, place: &str, data: &'r Value, results: &mut Vec<ConditionResult<'r>>) {
        for (at, rule) in self.rules.iter().enumerate() {
            let place = if place.is_empty() {
                format!("conditions[{at}]")
            } else {
                format!("{place}.conditions[{at}]")
            };
            match rule {
                Rule::Group(group) => group.explain(&place, data, results),
                Rule::Condition(Condition { field, operator, value }) => {
                    let actual = field.find(data);
                    let passed = operator.holds(value, actual);
                    results.push(ConditionResult {
                        place,
                        path: field.as_str(),
                        op: *operator,
                        value,
                        actual,
                        passed,
                    });
                }
            }
        }
    }

    fn to_json(&self) -> Value {
        let rules: Vec<Value> = self
            .rules
            .iter()
            .map(|rule| match rule {
                Rule::Group(group) => group.to_json(),
                Rule::Condition(Condition { field, operator, value }) => {
                    json!({"field": field.as_str(), "op": operator.name(), "value": value})
                }
            })
            .collect();
        json!({"logic": self.logic.name(), "conditions": rules})
    }
}

impl Logic {
    pub fn name(self) -> &'static str {
        match self {
            Self::And => "AND",
            Self::Or => "OR",
        }
    }
}

impl Condition {
    pub fn holds(&self, data: &Value) -> bool {
        self.operator.holds(&self.value, self.field.find(data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(value: &Value) -> FilterRules {
        FilterRules::parse(value).unwrap()
    }

    #[test]
    fn sc_03_groups_join_their_conditions() {
        let both = |logic: &str| json!({"logic": logic, "conditions": {"role": "admin", "age": {"gte": 18}}});
        for (role, age, and, or) in [
            ("admin", 18, true, true),
            ("admin", 17, false, true),
            ("user", 18, false, true),
            ("user", 17, false, false),
        ] {
            let event = json!({"role": role, "age": age});
            assert_eq!(rules(&both("AND")).matches(&event), and, "{event}");
            assert_eq!(rules(&both("OR")).matches(&event), or, "{event}");
        }
    }

    /// The second table of docs/reference/filters.md.
    #[test]
    fn sc_03_missing_null_and_other_types_pass_what_the_table_says() {
        let conditions = [
            json!({"f": 1}),
            json!({"f": {"ne": 1}}),
            json!({"f": {"gt": 0}}),
            json!({"f": {"in": [1]}}),
            json!({"f": {"nin": [1]}}),
            json!({"f": {"contains": 1}}),
            json!({"f": {"exists": true}}),
            json!({"f": {"exists": false}}),
        ];
        for (event, expected) in [
            (json!({}), "-+--+--+"),
            (json!({"f": null}), "-+--+-+-"),
            (json!({"f": 1}), "+-++--+-"),
            (json!({"f": 2}), "-++-+-+-"),
            (json!({"f": "1"}), "-+--+-+-"),
            (json!({"f": [1]}), "-+--+++-"),
        ] {
            let passed: String =
                conditions.iter().map(|one| if rules(one).matches(&event) { '+' } else { '-' }).collect();
            assert_eq!(passed, expected, "{event}");
        }
    }

    #[test]
    fn rules_without_conditions_match_everything() {
        for text in ["null", "{}", r#"{"conditions":[]}"#, r#"{"logic":"OR","conditions":{}}"#] {
            let rules = rules(&serde_json::from_str(text).unwrap());
            assert!(rules.is_all() && rules.matches(&json!({})) && rules.matches(&json!(null)), "{text}");
            assert_eq!(rules, FilterRules::all());
            assert_eq!(rules.to_json(), Value::Null);
        }
        let nested = rules(&json!({"logic": "OR", "conditions": [{"field": "a", "op": "eq", "value": 1},
            {"logic": "OR", "conditions": []}]}));
        assert!(nested.matches(&json!({"a": 2})));
    }

    #[test]
    fn operators_of_one_field_hold_together_whatever_the_logic() {
        let rules = rules(&json!({"logic": "OR", "conditions": {"age": {"gte": 18, "lt": 65}, "vip": true}}));
        for (event, expected) in [
            (json!({"age": 30, "vip": false}), true),
            (json!({"age": 70, "vip": false}), false),
            (json!({"age": 70, "vip": true}), true),
        ] {
            assert_eq!(rules.matches(&event), expected, "{event}");
        }
    }

    #[test]
    fn a_field_named_like_the_words_of_a_group_is_reached_through_a_group() {
        let map = rules(&json!({"conditions": {"logic": "x", "conditions": 1}}));
        let list = rules(&json!({"conditions": [{"field": "conditions", "op": "eq", "value": 1},
            {"field": "logic", "op": "eq", "value": "x"}]}));
        for rules in [map, list] {
            assert!(rules.matches(&json!({"logic": "x", "conditions": 1})));
            assert!(!rules.matches(&json!({"logic": "y", "conditions": 1})));
        }
    }

    #[test]
    fn an_explanation_names_the_condition_that_failed() {
        let rules = rules(&json!({"logic": "AND", "conditions": [
            {"field": "role", "op": "eq", "value": "admin"},
            {"logic": "OR", "conditions": {"user.age": {"gte": 18}}},
        ]}));
        let event = json!({"role": "admin", "user": {}});
        assert_eq!(
            serde_json::to_value(rules.explain(&event)).unwrap(),
            json!([
                {"place": "conditions[0]", "path": "role", "op": "eq", "value": "admin", "actual": "admin", "passed": true},
                {"place": "conditions[1].conditions[0]", "path": "user.age", "op": "gte", "value": 18, "passed": false},
            ])
        );
    }
}
