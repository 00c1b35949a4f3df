//! Measures the matcher: time per event at 1,000, 10,000 and 100,000 subscriptions of one tenant and type, about ten
//! of which match, beside trying every subscription; memory and changes per subscription.

mod heap;
mod hostile;
mod mixes;
mod samples;

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use mixes::{Mix, Source};
use samples::Samples;
use serde_json::{Value, json};
use tidemill_matcher::{FilterRules, Matcher};
use tidemill_model::{EventType, TenantId};

#[global_allocator]
static HEAP: heap::CountedHeap = heap::CountedHeap;

const USAGE: &str = "usage: tidemill-matcher-bench [MIX|hostile]... [--quick] [--json FILE]";
const SIZES: [usize; 3] = [1_000, 10_000, 100_000];
/// Goal for a realistic mix: microseconds per event, 99th percentile.
const GOAL_MICROS: f64 = 50.0;

struct Row {
    mix: &'static str,
    size: usize,
    matched: f64,
    tried: f64,
    index: Samples,
    with_parse: Samples,
    naive: Samples,
    bytes_each: f64,
    insert: Samples,
    remove: Samples,
}

fn main() -> ExitCode {
    let (mut wanted, mut quick, mut file) = (Vec::new(), false, None);
    let mut given = std::env::args().skip(1);
    while let Some(argument) = given.next() {
        match argument.as_str() {
            "--quick" => quick = true,
            "--json" => file = given.next(),
            "hostile" => wanted.push(argument),
            name if mixes::ALL.iter().any(|mix| mix.name == name) => wanted.push(argument),
            other => {
                eprintln!(
                    "unknown argument {other}\n{USAGE}\nmixes: {}",
                    mixes::ALL.map(|mix| mix.name).join(", ")
                );
                return ExitCode::FAILURE;
            }
        }
    }
    println!(
        "| mix | subscriptions | matched | tried | p50 µs | p99 µs | p99 with parse | every one tried, p50 µs | bytes each | insert p50 / p99 / max µs | remove p50 / p99 / max µs |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |");
    let mut rows = Vec::new();
    for mix in mixes::ALL.iter().filter(|mix| wanted.is_empty() || wanted.iter().any(|name| name == mix.name))
    {
        for size in SIZES {
            let row = measure(mix, size, quick);
            println!("{}", line(&row));
            rows.push(row);
        }
    }
    if wanted.is_empty() || wanted.iter().any(|name| name == "hostile") {
        hostile::measure(quick);
    }
    if let Some(file) = file {
        let rows: Vec<Value> = rows.iter().map(as_json).collect();
        std::fs::write(file, serde_json::to_string_pretty(&rows).expect("figures are JSON"))
            .expect("JSON is written");
    }
    ExitCode::SUCCESS
}

fn measure(mix: &Mix, size: usize, quick: bool) -> Row {
    let mut source = Source::new(size);
    let rules: Vec<FilterRules> = (0..size)
        .map(|at| FilterRules::parse(&(mix.rules)(&mut source, at)).expect("the rules are right"))
        .collect();
    let count = if quick { 500 } else { 5_000 };
    let events: Vec<Value> = (0..count).map(|_| (mix.event)(&mut source)).collect();
    let texts: Vec<String> = events.iter().map(Value::to_string).collect();
    let (tenant, event_type) =
        (TenantId::new("tenant").expect("an id"), EventType::new("order.placed").expect("a type"));

    let before = heap::bytes();
    let mut matcher: Matcher<u64, u64> = Matcher::new(size as u64);
    let mut insert = Samples::default();
    for (id, rules) in (0..).zip(&rules) {
        let began = Instant::now();
        matcher.insert(id, &tenant, &event_type, Some(rules), id).expect("there is room");
        insert.add(began);
    }
    let bytes_each = (heap::bytes() - before) as f64 / size as f64;

    let mut row = Row {
        mix: mix.name,
        size,
        matched: 0.0,
        tried: 0.0,
        index: Samples::default(),
        with_parse: Samples::default(),
        naive: Samples::default(),
        bytes_each,
        insert,
        remove: Samples::default(),
    };
    let (mut matched, mut tried) = (0, 0);
    for round in 0..3 {
        for text in &texts {
            let began = Instant::now();
            let event: Value = serde_json::from_str(text).expect("it is JSON");
            let parsed = Instant::now();
            let counts = matcher.matches(&tenant, &event_type, &event, |id, _| {
                black_box(id);
            });
            // The first round warms up.
            if round > 0 {
                row.index.add(parsed);
                row.with_parse.add(began);
                (matched, tried) = (matched + counts.matched, tried + counts.tried);
            }
        }
    }
    (row.matched, row.tried) =
        (matched as f64 / 2.0 / f64::from(count), tried as f64 / 2.0 / f64::from(count));
    for event in events.iter().take(if quick { 5 } else { 20 }) {
        let began = Instant::now();
        let found = rules.iter().filter(|rules| rules.matches(event)).count();
        row.naive.add(began);
        let counts = matcher.matches(&tenant, &event_type, event, |_, _| ());
        assert_eq!(counts.matched, found, "{}: {event}", mix.name);
    }
    // Changes of a full matcher: one goes, and comes again.
    for at in 0..size.min(5_000) {
        let id = (at as u64 * 7_919) % size as u64;
        let began = Instant::now();
        black_box(matcher.remove(&id));
        row.remove.add(began);
        matcher
            .insert(id, &tenant, &event_type, Some(&rules[usize::try_from(id).expect("small")]), id)
            .expect("there is room");
    }
    row
}

fn line(row: &Row) -> String {
    let changes = |samples: &Samples| {
        format!("{:.1} / {:.1} / {:.0}", samples.at(0.5), samples.at(0.99), samples.at(1.0))
    };
    format!(
        "| {} | {} | {:.1} | {:.1} | {:.1} | {:.1}{} | {:.1} | {:.0} | {:.0} | {} | {} |",
        row.mix,
        row.size,
        row.matched,
        row.tried,
        row.index.at(0.5),
        row.index.at(0.99),
        if row.index.at(0.99) > GOAL_MICROS { " !" } else { "" },
        row.with_parse.at(0.99),
        row.naive.at(0.5),
        row.bytes_each,
        changes(&row.insert),
        changes(&row.remove),
    )
}

fn as_json(row: &Row) -> Value {
    json!({
        "mix": row.mix, "subscriptions": row.size, "matched": row.matched, "tried": row.tried,
        "p50Micros": row.index.at(0.5), "p99Micros": row.index.at(0.99), "parseP50Micros": row.with_parse.at(0.5),
        "parseP99Micros": row.with_parse.at(0.99), "naiveP50Micros": row.naive.at(0.5), "bytesEach": row.bytes_each,
        "insertP50Micros": row.insert.at(0.5), "insertMeanMicros": row.insert.mean(), "insertP99Micros": row.insert.at(0.99),
        "insertMaxMicros": row.insert.at(1.0), "removeP50Micros": row.remove.at(0.5), "removeP99Micros": row.remove.at(0.99),
        "removeMaxMicros": row.remove.at(1.0),
    })
}
