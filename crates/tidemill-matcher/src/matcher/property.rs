//! Whatever the rules and the events are: the matcher finds what trying all rules finds.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::bucket::Limits;
use super::node::Tuning;
use super::subscriptions::{MatchCounts, Matcher};
use crate::filter::{FilterRules, Operator};
use tidemill_model::values::id::{EventType, TenantId};

/// Small numbers from a seed, so that a failure can be run again.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) >> 33).unwrap() % sides
    }

    fn one_in(&mut self, sides: usize) -> bool {
        self.below(sides) == 0
    }

    fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }

    fn text(&mut self) -> String {
        let letters = ["a", "b", "aab", "é", "中", "\0", "abababab"];
        let times = if self.one_in(20) { 60 } else { 1 };
        (0..self.below(5) * times).map(|_| self.pick(&letters)).collect()
    }

    fn number(&mut self) -> Value {
        let edges = [
            json!(0),
            json!(-0.0),
            json!(1),
            json!(1.0),
            json!(1.5),
            json!(-1),
            json!(2),
            json!(9_007_199_254_740_992_u64),
            json!(9_007_199_254_740_993_u64),
            json!(9_007_199_254_740_992.0),
            json!(u64::MAX),
            json!(i64::MIN),
            json!(1.844_674_407_370_955_2e19),
            json!(1e300),
            json!(5e-324),
        ];
        self.pick(&edges)
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.below(if depth == 0 { 6 } else { 8 }) {
            0 => Value::Null,
            1 => json!(self.one_in(2)),
            2 | 3 => self.number(),
            4 => self.text().into(),
            5 => self.pick(&["1", "a", "b", "abababab", ""]).into(),
            6 => (0..self.below(4)).map(|_| self.value(depth - 1)).collect(),
            _ => self.object(depth - 1),
        }
    }

    fn object(&mut self, depth: usize) -> Value {
        let mut fields = Map::new();
        for _ in 0..self.below(6) {
            let name = self.pick(&["a", "b", "c", "0", "1", "logic"]);
            fields.insert(name.to_owned(), self.value(depth));
        }
        Value::Object(fields)
    }

    fn field(&mut self) -> &'static str {
        self.pick(&[
            "a", "a", "a", "b", "b", "c", "a.0", "a.1", "a.b", "c.a", "c.0.a", "b.a.c", "logic", "gone",
        ])
    }

    fn condition(&mut self) -> Value {
        let operator = self.pick(&Operator::ALL);
        let value = match operator {
            Operator::Exists => json!(self.one_in(2)),
            Operator::StartsWith | Operator::EndsWith => self.text().into(),
            Operator::Gt | Operator::Gte | Operator::Lt | Operator::Lte if self.one_in(3) => {
                self.text().into()
            }
            Operator::Gt | Operator::Gte | Operator::Lt | Operator::Lte => self.number(),
            Operator::In | Operator::Nin => (0..=self.below(5)).map(|_| self.value(1)).collect(),
            Operator::Contains if self.one_in(2) => self.text().into(),
            _ => self.value(2),
        };
        json!({"field": self.field(), "op": operator.name(), "value": value})
    }

    /// A group with at most `left` conditions, which it takes away.
    fn group(&mut self, depth: usize, left: &mut usize) -> Value {
        let mut rules = Vec::new();
        for _ in 0..self.below(if depth == 1 { 6 } else { 5 }) {
            if depth < 5 && self.one_in(3) {
                rules.push(self.group(depth + 1, left));
            } else if *left > 0 {
                *left -= 1;
                rules.push(self.condition());
            }
        }
        json!({"logic": if self.one_in(2) { "OR" } else { "AND" }, "conditions": rules})
    }

    fn rules(&mut self) -> Option<FilterRules> {
        let written = match self.below(16) {
            0 => return None,
            // Many alternatives, so that not all of them fit.
            1 => {
                let groups: Vec<Value> = (0..=self.below(5))
                    .map(|_| {
                        let conditions: Vec<Value> = (0..=self.below(5)).map(|_| self.condition()).collect();
                        json!({"logic": "OR", "conditions": conditions})
                    })
                    .collect();
                json!({"logic": if self.one_in(4) { "OR" } else { "AND" }, "conditions": groups})
            }
            2..=9 => json!({"conditions": (0..=self.below(3)).map(|_| self.condition()).collect::<Vec<_>>()}),
            _ => self.group(1, &mut 50),
        };
        Some(FilterRules::parse(&written).unwrap_or_else(|problem| panic!("{written}: {problem}")))
    }
}

type Kept = BTreeMap<u32, (TenantId, EventType, Option<FilterRules>)>;

/// The same question to the matcher and to every rule.
fn compare(
    matcher: &Matcher<u32, u32>,
    kept: &Kept,
    tenant: &TenantId,
    event_type: &EventType,
    event: &Value,
) -> MatchCounts {
    let mut found = Vec::new();
    let counts = matcher.matches(tenant, event_type, event, |id, payload| {
        assert_eq!(*payload, *id * 7, "what came with a subscription is told with it");
        found.push(*id);
    });
    found.sort_unstable();
    let asked = || kept.iter().filter(|(_, (whose, what, _))| whose == tenant && what == event_type);
    let wanted = |rules: &Option<FilterRules>| rules.as_ref().is_none_or(|rules| rules.matches(event));
    let expected: Vec<u32> = asked().filter(|(_, (.., rules))| wanted(rules)).map(|(id, _)| *id).collect();
    for (id, (.., rules)) in asked() {
        let (told, wanted) = (found.contains(id), expected.contains(id));
        assert_eq!(told, wanted, "{event} and {}: told, wanted", json!(rules));
    }
    assert_eq!(found, expected, "each is told once");
    let filtered = asked().count() - expected.len();
    assert_eq!((counts.matched, counts.filtered), (expected.len(), filtered), "{event}");
    counts
}

fn run(seed: u64, tuning: Tuning, steps: usize, ids: usize) -> MatchCounts {
    let mut dice = Dice(seed);
    let tenants = ["one", "two"].map(|name| TenantId::new(name).unwrap());
    let types = ["user.created", "user.gone"].map(|name| EventType::new(name).unwrap());
    let mut matcher = Matcher::tuned(seed, tuning, Limits::default());
    let mut kept = Kept::new();
    let mut sum = MatchCounts::default();
    for _ in 0..steps {
        let id = u32::try_from(dice.below(ids)).unwrap();
        if dice.one_in(3) {
            assert_eq!(matcher.remove(&id).is_some(), kept.remove(&id).is_some());
        } else {
            // Most are in one bucket.
            let at = [usize::from(dice.one_in(8)), usize::from(dice.one_in(8))];
            let (tenant, event_type, rules) = (&tenants[at[0]], &types[at[1]], dice.rules());
            matcher.insert(id, tenant, event_type, rules.as_ref(), id * 7).unwrap();
            kept.insert(id, (tenant.clone(), event_type.clone(), rules));
        }
        assert_eq!(matcher.len(), kept.len());
        for _ in 0..dice.below(3) {
            let event = if dice.one_in(20) { dice.value(3) } else { dice.object(3) };
            let at = [usize::from(dice.one_in(8)), usize::from(dice.one_in(8))];
            let counts = compare(&matcher, &kept, &tenants[at[0]], &types[at[1]], &event);
            sum.matched += counts.matched;
            sum.filtered += counts.filtered;
        }
    }
    for id in kept.keys() {
        matcher.remove(id).unwrap();
    }
    assert!(matcher.is_empty() && matcher.count(&tenants[0], &types[0]) == 0);
    sum
}

#[test]
fn the_matcher_finds_what_trying_all_finds() {
    let mut sum = MatchCounts::default();
    for seed in 0..2_000 {
        // Small sets are split at once, so that the indexes and not the lists are tried.
        let tuning = Tuning { root: 1 + usize::try_from(seed % 3).unwrap(), leaf: 1, run: 2, scans: 1 };
        let counts = run(seed, tuning, 20, 14);
        sum.matched += counts.matched;
        sum.filtered += counts.filtered;
    }
    let share = sum.matched * 100 / (sum.matched + sum.filtered);
    assert!((10..60).contains(&share), "{share} of 100 match: too one-sided to tell anything");
}

#[test]
fn the_matcher_finds_what_trying_all_finds_among_many() {
    for seed in 0..2 {
        run(seed, Tuning { run: 16, ..Tuning::default() }, 1_200, 700);
    }
}
