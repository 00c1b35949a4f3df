//! A hostile tenant: as many conditions as the limits allow, all of them expensive, and long events.

use std::hint::black_box;
use std::time::Instant;

use serde_json::{Value, json};
use tidemill_matcher::{FilterRules, Matcher};
use tidemill_model::{EventType, TenantId};

use crate::mixes::Source;
use crate::samples::Samples;

/// One kind of rules, and the event that is worst for them.
struct Attack {
    name: &'static str,
    rules: fn(&mut Source, usize) -> Value,
    event: fn(&mut Source) -> Value,
}

/// After how many comparisons an event is put aside.
const WORK_MAX: usize = 10_000;

const LETTERS: &[u8] = b"abcd";

fn text(source: &mut Source, length: usize) -> String {
    (0..length).map(|_| char::from(LETTERS[source.below(LETTERS.len())])).collect()
}

fn long_message(source: &mut Source) -> Value {
    json!({"message": text(source, 100_000)})
}

const ATTACKS: [Attack; 4] = [
    Attack {
        name: "50 parts of a text of 100 KB each, joined by OR",
        rules: |source, _| {
            let parts: Vec<Value> = (0..50)
                .map(|_| json!({"field": "message", "op": "contains", "value": text(source, 24)}))
                .collect();
            json!({"logic": "OR", "conditions": parts})
        },
        event: long_message,
    },
    Attack {
        name: "every window of the part is in the text, the part is not",
        rules: |source, at| {
            // Blocks that the text has, in an order that it has not.
            let blocks: Vec<String> =
                (0..6).map(|step| format!("{:08}", (at + source.below(40) * step) % 97)).collect();
            json!({"message": {"contains": blocks.concat()}})
        },
        event: |_| {
            let pairs = (0..97).flat_map(|left| (0..97).map(move |right| format!("{left:08}{right:08}")));
            json!({"message": pairs.collect::<String>()[..100_000]})
        },
    },
    Attack {
        name: "nothing to look up: ne, nin of 100, and a field of its own that is not there",
        rules: |source, at| {
            let list: Vec<usize> = (0..100).map(|_| 1 + source.below(1000)).collect();
            json!({"a": {"nin": list}, "b": {"ne": at}, "c": {"nin": [at]}, "d": {"ne": "gone"}, "e": {"nin": [0]}})
        },
        event: |_| json!({"a": 0, "b": -1, "c": -1, "d": 1, "e": 0}),
    },
    Attack {
        name: "5,000 fields of its own each, and an event that has them all",
        rules: |_, at| json!({format!("f{}", at % 5_000): {"gte": 1}, format!("g{}", at % 4_999): {"exists": false}}),
        event: |_| (0..5_000).map(|at| (format!("f{at}"), json!(0))).collect(),
    },
];

pub fn measure(quick: bool) {
    println!(
        "\n| a tenant's attack | subscriptions | one event of theirs, ms | tried | put aside after, ms | events of another tenant p50 / p99 µs |"
    );
    println!("| --- | --- | --- | --- | --- | --- |");
    let (noisy, calm) = (TenantId::new("noisy").expect("an id"), TenantId::new("calm").expect("an id"));
    let event_type = EventType::new("order.placed").expect("a type");
    for attack in &ATTACKS {
        let mut source = Source::new(100_000);
        let mut matcher: Matcher<u64, ()> = Matcher::new(1);
        for id in 0..if quick { 10_000 } else { 100_000 } {
            let rules = FilterRules::parse(&(attack.rules)(&mut source, id)).expect("the rules are right");
            if matcher.insert(id as u64, &noisy, &event_type, Some(&rules), ()).is_err() {
                break;
            }
        }
        let theirs = matcher.len();
        for id in 0..1_000_u64 {
            let rules = FilterRules::parse(&json!({"storeId": id / 10})).expect("the rules are right");
            matcher.insert(1_000_000 + id, &calm, &event_type, Some(&rules), ()).expect("there is room");
        }
        let event = (attack.event)(&mut source);
        let (mut own, mut aside, mut other) = (Samples::default(), Samples::default(), Samples::default());
        let mut tried = 0;
        for round in 0..3 {
            let began = Instant::now();
            tried = black_box(matcher.matches(&noisy, &event_type, &event, |_, ()| ())).tried;
            own.add(began);
            let began = Instant::now();
            black_box(matcher.matches_within(WORK_MAX, &noisy, &event_type, &event, |_, ()| ()));
            aside.add(began);
            for at in 0..1_000 {
                let event = json!({"storeId": (at + round) % 100, "status": "placed"});
                let began = Instant::now();
                let counts = matcher.matches(&calm, &event_type, &event, |_, ()| ());
                other.add(began);
                assert_eq!(counts.matched, 10);
            }
        }
        let (p50, p99) = (other.at(0.5), other.at(0.99));
        let (own, aside) = (own.at(0.5) / 1e3, aside.at(0.5) / 1e3);
        println!("| {} | {theirs} | {own:.1} | {tried} | {aside:.1} | {p50:.1} / {p99:.1} |", attack.name);
    }
}
