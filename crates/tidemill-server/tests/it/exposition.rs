//! A strict reader of the text format of Prometheus: what it takes, every scraper takes.

use std::collections::{BTreeMap, BTreeSet};

/// The labels of a sample.
pub(crate) type Labels = BTreeMap<String, String>;

/// One metric with all its samples.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) kind: String,
    /// What follows the family's name, the labels and the value.
    pub(crate) samples: Vec<(String, Labels, f64)>,
}

/// All metrics of a text by their names. Panics at the first thing that is wrong.
pub(crate) fn read(text: &str) -> BTreeMap<String, Family> {
    assert!(text.ends_with('\n'), "the last line has an end");
    let mut families: BTreeMap<String, Family> = BTreeMap::new();
    let mut series = BTreeSet::new();
    let mut current = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, about) = help.split_once(' ').unwrap_or_else(|| panic!("no help: {line}"));
            assert!(is_name(name, true), "{line}");
            assert!(!about.trim().is_empty() && !about.contains('\\'), "{line}");
            let next = lines.next().unwrap_or_default();
            let kind = next.strip_prefix(&format!("# TYPE {name} "));
            let kind = kind.unwrap_or_else(|| panic!("no type behind {line}: {next}"));
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{next}");
            assert!(kind != "counter" || name.ends_with("_total"), "{next}");
            let family = Family { kind: kind.to_owned(), samples: Vec::new() };
            assert!(families.insert(name.to_owned(), family).is_none(), "{name} is there twice");
            name.clone_into(&mut current);
            continue;
        }
        assert!(!line.starts_with('#') && !line.is_empty(), "{line:?}");
        let (name, labels, value) = sample(line);
        let family = families.get_mut(&current).unwrap_or_else(|| panic!("before any family: {line}"));
        let ending =
            name.strip_prefix(current.as_str()).unwrap_or_else(|| panic!("not in {current}: {line}"));
        let allowed: &[&str] =
            if family.kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        assert!(allowed.contains(&ending), "{line}");
        assert_eq!(labels.contains_key("le"), ending == "_bucket", "{line}");
        assert!(family.kind == "gauge" || value >= 0.0, "{line}");
        assert!(series.insert((name.clone(), labels.clone())), "twice: {line}");
        family.samples.push((ending.to_owned(), labels, value));
    }
    for (name, family) in &families {
        if family.kind == "histogram" {
            check_histogram(name, family);
        }
    }
    families
}

fn sample(line: &str) -> (String, Labels, f64) {
    let end = line.find(['{', ' ']).unwrap_or_else(|| panic!("no value: {line}"));
    let name = &line[..end];
    assert!(is_name(name, true), "{line}");
    let mut labels = Labels::new();
    let mut rest = &line[end..];
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        loop {
            let (label, after) = rest.split_once("=\"").unwrap_or_else(|| panic!("no label: {line}"));
            assert!(is_name(label, false), "{line}");
            let (value, after) = label_value(after, line);
            assert!(labels.insert(label.to_owned(), value).is_none(), "a label twice: {line}");
            if let Some(after) = after.strip_prefix('}') {
                rest = after;
                break;
            }
            rest = after.strip_prefix(',').unwrap_or_else(|| panic!("no comma: {line}"));
        }
    }
    let value = rest.strip_prefix(' ').unwrap_or_else(|| panic!("no space: {line}"));
    let value: f64 = value.parse().unwrap_or_else(|_| panic!("no number: {line}"));
    assert!(value.is_finite(), "{line}");
    (name.to_owned(), labels, value)
}

/// A value up to its closing quote, without its escapes, and what follows.
fn label_value<'a>(text: &'a str, line: &str) -> (String, &'a str) {
    let mut value = String::new();
    let mut places = text.char_indices();
    while let Some((place, character)) = places.next() {
        match character {
            '"' => return (value, &text[place + 1..]),
            '\\' => value.push(match places.next() {
                Some((_, '\\')) => '\\',
                Some((_, '"')) => '"',
                Some((_, 'n')) => '\n',
                other => panic!("{other:?} is escaped: {line}"),
            }),
            other => value.push(other),
        }
    }
    panic!("a label is not closed: {line}")
}

fn is_name(name: &str, is_metric: bool) -> bool {
    let fits = |c: char| c == '_' || c.is_ascii_alphanumeric() || (is_metric && c == ':');
    !name.is_empty() && name.chars().all(fits) && !name.starts_with(|c: char| c.is_ascii_digit())
}

fn check_histogram(name: &str, family: &Family) {
    let one = |ending: &str| {
        let mut found = family.samples.iter().filter(|(own, ..)| own == ending);
        let (_, labels, value) = found.next().unwrap_or_else(|| panic!("{name}{ending} is missing"));
        assert!(labels.is_empty() && found.next().is_none(), "{name}{ending}");
        *value
    };
    let buckets: Vec<(f64, f64)> = family
        .samples
        .iter()
        .filter(|(ending, ..)| ending == "_bucket")
        .map(|(_, labels, count)| {
            let bound = if labels["le"] == "+Inf" { f64::INFINITY } else { labels["le"].parse().unwrap() };
            (bound, *count)
        })
        .collect();
    for pair in buckets.windows(2) {
        assert!(pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1, "{name}: {pair:?}");
    }
    let last = buckets.last().unwrap_or_else(|| panic!("{name} has no bucket"));
    assert_eq!(last, &(f64::INFINITY, one("_count")), "{name}");
    assert!(one("_sum") >= 0.0 && (one("_count") > 0.0 || one("_sum") == 0.0), "{name}");
}

#[test]
fn the_reader_takes_nothing_that_is_wrong() {
    let head = "# HELP a_total About.\n# TYPE a_total counter\n";
    let good = format!("{head}a_total{{x=\"1\\\\\\\"\\n\"}} 1\na_total{{x=\"2\"}} 2.5e3\n");
    assert_eq!(read(&good)["a_total"].samples[0].1["x"], "1\\\"\n");
    let histogram = |buckets: &str| format!("# HELP h H.\n# TYPE h histogram\n{buckets}");
    read(&histogram("h_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n"));
    for bad in [
        format!("{head}a_total 1"),
        format!("{head}a_total 1\na_total 1\n"),
        format!("{head}{head}"),
        format!("{head}b_total 1\n"),
        format!("{head}a_total -1\n"),
        format!("{head}a_total NaN\n"),
        format!("{head}a_total one\n"),
        format!("{head}a_total{{x=\"\\t\"}} 1\n"),
        format!("{head}a_total{{x=\"1\",x=\"2\"}} 1\n"),
        format!("{head}a_total{{1x=\"1\"}} 1\n"),
        format!("{head}a_total{{x=\"1\" 1\n"),
        "a_total 1\n".to_owned(),
        "# HELP a_total About.\na_total 1\n".to_owned(),
        "# HELP a About.\n# TYPE a counter\n".to_owned(),
        histogram("h_bucket{le=\"1\"} 3\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n"),
        histogram(
            "h_bucket{le=\"2\"} 1\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n",
        ),
        histogram("h_bucket{le=\"1\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 3\n"),
        histogram("h_bucket{le=\"1\"} 1\nh_sum 3\nh_count 1\n"),
        histogram("h_bucket{le=\"+Inf\"} 2\nh_count 2\n"),
        histogram("h 2\n"),
    ] {
        let taken = std::panic::catch_unwind(|| read(&bad));
        assert!(taken.is_err(), "taken: {bad}");
    }
}
