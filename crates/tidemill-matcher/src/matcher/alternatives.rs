//! Rules as alternatives: conjunctions of which one must hold.

use super::conjunction::bytes_of;
use crate::filter::{Condition, FilterRules, Logic, Rule, RuleGroup};

/// How many conjunctions rules are split into at most. More than [`crate::filter::CONDITIONS_MAX`], so that a plain
/// list of alternatives always fits.
const ALTERNATIVES_MAX: usize = 64;
/// How many conditions these may have in all.
const SPREAD_MAX: usize = 512;

/// An event that passes the rules passes one of the conjunctions.
#[derive(Debug)]
pub(super) struct Alternatives<'r> {
    pub(super) conjunctions: Vec<Vec<&'r Condition>>,
    /// Whether the reverse is true too. Otherwise conditions were left out, and the rules themselves have the last word.
    pub(super) exact: bool,
}

impl Alternatives<'_> {
    /// How many comparisons trying all of them takes at most, if `rules` are what was split.
    pub(super) fn conditions(&self, rules: &FilterRules) -> usize {
        let whole = if self.exact { 0 } else { rules.conditions() };
        size(&self.conjunctions) + self.conjunctions.len() * whole
    }

    /// About how many bytes their values take.
    pub(super) fn bytes(&self, rules: &FilterRules) -> usize {
        let whole = if self.exact { 0 } else { bytes_of_group(rules.root()) };
        let spread = self.conjunctions.iter().flatten().map(|condition| bytes_of(&condition.value));
        spread.sum::<usize>() + self.conjunctions.len() * whole
    }
}

fn bytes_of_group(group: &RuleGroup) -> usize {
    let of_rule = |rule: &Rule| match rule {
        Rule::Condition(condition) => bytes_of(&condition.value),
        Rule::Group(group) => bytes_of_group(group),
    };
    group.rules.iter().map(of_rule).sum()
}

/// Splits rules. One conjunction without conditions says that every event passes.
pub(super) fn alternatives(rules: &FilterRules) -> Alternatives<'_> {
    of_group(rules.root())
}

fn of_rule(rule: &Rule) -> Alternatives<'_> {
    match rule {
        Rule::Condition(condition) => Alternatives { conjunctions: vec![vec![condition]], exact: true },
        Rule::Group(group) => of_group(group),
    }
}

fn of_group(group: &RuleGroup) -> Alternatives<'_> {
    let mut parts: Vec<Alternatives<'_>> = group.rules.iter().map(of_rule).collect();
    if parts.is_empty() {
        return Alternatives { conjunctions: vec![Vec::new()], exact: true };
    }
    match group.logic {
        Logic::And => {
            // What has few alternatives comes first: if not all fit, the widest are left out.
            parts.sort_by_key(|part| part.conjunctions.len());
            parts.into_iter().reduce(|left, right| both(left, &right)).expect("there is a part")
        }
        Logic::Or => either(group, parts),
    }
}

/// Every alternative of one with every alternative of the other, or only the first if that is too many.
fn both<'r>(left: Alternatives<'r>, right: &Alternatives<'r>) -> Alternatives<'r> {
    let (here, there) = (&left.conjunctions, &right.conjunctions);
    let spread = size(here) * there.len() + size(there) * here.len();
    if here.len() * there.len() > ALTERNATIVES_MAX || spread > SPREAD_MAX {
        return Alternatives { conjunctions: left.conjunctions, exact: false };
    }
    let joined = here.iter().flat_map(|left| there.iter().map(move |right| [&left[..], &right[..]].concat()));
    Alternatives { conjunctions: joined.collect(), exact: left.exact && right.exact }
}

fn either<'r>(group: &'r RuleGroup, parts: Vec<Alternatives<'r>>) -> Alternatives<'r> {
    let exact = parts.iter().all(|part| part.exact);
    let conjunctions: Vec<_> = parts.into_iter().flat_map(|part| part.conjunctions).collect();
    if conjunctions.iter().any(Vec::is_empty) {
        // Conditions are only ever left out beside others, so what has none never had any.
        return Alternatives { conjunctions: vec![Vec::new()], exact: true };
    }
    if conjunctions.len() > ALTERNATIVES_MAX || size(&conjunctions) > SPREAD_MAX {
        let cover = cover(group).expect("a group that always holds has an empty conjunction");
        let conjunctions = cover.into_iter().map(|condition| vec![condition]).collect();
        return Alternatives { conjunctions, exact: false };
    }
    Alternatives { conjunctions, exact }
}

/// Conditions of which one holds whenever the group does; as few as there can be. None for a group that always holds.
fn cover<'r>(group: &'r RuleGroup) -> Option<Vec<&'r Condition>> {
    let of_rule = |rule: &'r Rule| match rule {
        Rule::Condition(condition) => Some(vec![condition]),
        Rule::Group(group) => cover(group),
    };
    let mut covers = group.rules.iter().map(of_rule);
    match group.logic {
        Logic::And => covers.flatten().min_by_key(Vec::len),
        Logic::Or if group.rules.is_empty() => None,
        Logic::Or => covers.try_fold(Vec::new(), |joined, cover| Some([joined, cover?].concat())),
    }
}

fn size(conjunctions: &[Vec<&Condition>]) -> usize {
    conjunctions.iter().map(Vec::len).sum()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn shape(rules: &Value) -> (usize, usize, bool) {
        let rules = FilterRules::parse(rules).unwrap();
        let split = alternatives(&rules);
        (split.conjunctions.len(), size(&split.conjunctions), split.exact)
    }

    fn either_of(fields: std::ops::Range<usize>) -> Value {
        let conditions: serde_json::Map<String, Value> =
            fields.map(|at| (format!("f{at}"), json!(at))).collect();
        json!({"logic": "OR", "conditions": conditions})
    }

    #[test]
    fn rules_become_alternatives_and_never_too_many() {
        assert_eq!(shape(&json!(null)), (1, 0, true));
        assert_eq!(shape(&json!({"a": 1, "b": {"gt": 1, "lt": 2}})), (1, 3, true));
        assert_eq!(shape(&either_of(0..50)), (50, 50, true));
        assert_eq!(shape(&json!({"conditions": [either_of(0..4), either_of(4..8)]})), (16, 32, true));
        // 4 × 4 × 4 fit, the fourth group is left out.
        let four = [either_of(0..4), either_of(4..8), either_of(8..12), either_of(12..16)];
        assert_eq!(shape(&json!({"conditions": four})), (64, 192, false));
        // Two such groups are too many together: each gives its shortest cover.
        let twice = json!({"logic": "OR", "conditions": [
            {"conditions": [either_of(0..8), either_of(8..16)]},
            {"conditions": [either_of(16..24), either_of(24..31)]},
        ]});
        assert_eq!(shape(&twice), (15, 15, false));
        // A cover leaves out what always holds.
        let idle = json!({"logic": "OR", "conditions": [either_of(30..31), {"conditions": []}]});
        let covered = json!({"logic": "OR", "conditions": [
            {"conditions": [idle, either_of(0..8), either_of(8..17)]},
        ]});
        assert_eq!(shape(&covered), (8, 8, false));
        // What always holds makes the rest superfluous.
        let always = json!({"logic": "OR", "conditions": [{"conditions": []}, either_of(0..4)]});
        assert_eq!(shape(&always), (1, 0, true));
    }
}
