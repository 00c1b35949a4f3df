//! The metrics: their format, their values after known work, and that every name that is documented or used is there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tidemill_engine::metrics::METRIC_NAMES_MAX;
use tidemill_engine::policy::Policy;
use tidemill_model::Role;
use tidemill_server::ServerConfig;

use crate::exposition::{Family, read};
use crate::lab::{Client, Lab};

type Families = std::collections::BTreeMap<String, Family>;

async fn scrape(client: &Client) -> Families {
    read(&client.get("/metrics").await.text())
}

/// The value of the series with this ending and exactly these labels.
fn value(families: &Families, name: &str, ending: &str, labels: &[(&str, &str)]) -> f64 {
    let family = families.get(name).unwrap_or_else(|| panic!("{name} is not there"));
    let wanted = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let found = family.samples.iter().find(|(own, labels, _)| own == ending && *labels == wanted);
    found.unwrap_or_else(|| panic!("{name}{ending} has no {labels:?}: {family:?}")).2
}

fn plain(families: &Families, name: &str) -> f64 {
    value(families, name, "", &[])
}

fn is(found: f64, expected: f64, what: &str) {
    assert!((found - expected).abs() < 1e-9, "{what} is {found}, not {expected}");
}

#[tokio::test]
async fn known_work_gives_known_numbers() {
    let lab = Lab::start().await;
    let client = lab.local();
    client.define("work").await;
    let before = scrape(&client).await;
    is(plain(&before, "tidemill_workers"), 0.0, "workers before");

    // Two roots and one task behind both; a retry, a failure, and a task without a job that is given back.
    client.submit(&[("a", &[]), ("b", &[]), ("c", &["a", "b"])]).await;
    let waiting = scrape(&client).await;
    is(plain(&waiting, "tidemill_queue_messages"), 2.0, "messages");
    is(plain(&waiting, "tidemill_queue_ready"), 2.0, "ready");
    let roots = client.claim(2).await;
    let taken = scrape(&client).await;
    is(plain(&taken, "tidemill_queue_messages"), 2.0, "claimed messages stay");
    is(plain(&taken, "tidemill_queue_ready"), 0.0, "and are hidden");
    is(plain(&taken, "tidemill_queue_oldest_seconds"), 0.0, "nothing waits");
    client.complete(&roots[0], &json!({})).await;
    client.complete(&roots[1], &json!({})).await;
    let last = client.claim(1).await.remove(0);
    let busy =
        json!({"status": "failed", "error": "busy", "errorCategory": "network", "retryAfterMs": 3_600_000});
    client.finish(&last, &busy).await.expect(200);

    client.submit(&[("x", &[])]).await;
    let task = client.claim(1).await.remove(0);
    client.fail(&task).await;
    client.post("/v1/tasks", &json!({"requestId": "alone", "name": "work"})).await.expect(202);
    let task = client.claim(1).await.remove(0);
    let back = json!({"requestId": "alone", "fence": task["fence"], "reason": "shutdown"});
    client.post("/v1/worker/release", &back).await.expect(200);
    let refused = client.post("/v1/worker/release", &back).await;
    assert_eq!(refused.code(), "LEASE_LOST");

    let after = scrape(&client).await;
    let ended = |outcome, class| {
        value(&after, "tidemill_attempts_ended_total", "", &[("outcome", outcome), ("class", class)])
    };
    is(ended("completed", ""), 2.0, "completed");
    is(ended("retrying", "network"), 1.0, "retrying");
    is(ended("failed", "validation"), 1.0, "failed");
    is(plain(&after, "tidemill_attempts_claimed_total"), 5.0, "claimed");
    is(plain(&after, "tidemill_attempts_released_total"), 1.0, "released");
    is(plain(&after, "tidemill_takeovers_total"), 0.0, "takeovers");
    is(plain(&after, "tidemill_commands_refused_total"), 1.0, "refused");
    is(plain(&after, "tidemill_tasks_submitted_total"), 1.0, "tasks");
    is(plain(&after, "tidemill_workers"), 1.0, "workers");
    is(value(&after, "tidemill_submit_to_start_seconds", "_count", &[]), 4.0, "a, b, x and alone");
    is(value(&after, "tidemill_hop_seconds", "_count", &[]), 1.0, "c");
    for (event, count) in [("created", 2.0), ("completed", 0.0), ("failure", 1.0), ("cancelled", 0.0)] {
        is(value(&after, "tidemill_jobs_total", "", &[("event", event)]), count, event);
    }
    let commits = plain(&after, "tidemill_commits_total");
    is(value(&after, "tidemill_commit_seconds", "_count", &[]), commits, "each commit was measured");
    is(value(&after, "tidemill_commit_events", "_count", &[]), commits, "and its events counted");
    assert!(commits > plain(&before, "tidemill_commits_total"));
    assert!(plain(&after, "tidemill_commit_bytes_total") > plain(&before, "tidemill_commit_bytes_total"));
    assert!(value(&after, "tidemill_commit_seconds", "_sum", &[]) > 0.0);
    assert!(value(&after, "tidemill_command_seconds", "_count", &[]) >= 10.0);
}

#[tokio::test]
async fn a_silent_worker_is_counted_as_a_takeover_and_its_wait_is_no_hop() {
    let policy = Policy { lease_millis: 1, ..Policy::default() };
    let lab = Lab::with(ServerConfig::default(), policy).await;
    let client = lab.local();
    client.define("work").await;
    client.submit(&[("a", &[])]).await;
    assert_eq!(client.claim(1).await.len(), 1);
    let wait = json!({"workerId": "w2", "waitMs": 30_000});
    let taken = client.post("/v1/worker/claim", &wait).await.expect(200);
    assert_eq!(taken["tasks"].as_array().unwrap().len(), 1);
    let after = scrape(&client).await;
    is(plain(&after, "tidemill_takeovers_total"), 1.0, "takeovers");
    is(plain(&after, "tidemill_workers"), 2.0, "workers");
    is(value(&after, "tidemill_submit_to_start_seconds", "_count", &[]), 1.0, "only the first claim");
}

/// The pairs of definition and job that a family names.
fn names(families: &Families, family: &str) -> BTreeSet<(String, String)> {
    let samples = families.get(family).map(|family| family.samples.as_slice()).unwrap_or_default();
    samples.iter().map(|(_, labels, _)| (labels["definition"].clone(), labels["job"].clone())).collect()
}

const NAMED: [&str; 3] = [
    "tidemill_task_attempts_claimed_total",
    "tidemill_task_attempts_ended_total",
    "tidemill_task_attempt_seconds_total",
];

/// Submits a job of one task, and has it run and succeed.
async fn run_one(client: &Client, worker: &Client, definition: &str, job: Option<&str>) {
    let mut file = json!({"tasks": [{"taskId": "a", "name": definition}]});
    if let Some(job) = job {
        file["name"] = json!(job);
    }
    client.post("/v1/jobs", &file).await.expect(201);
    let task = worker.claim(1).await.remove(0);
    worker.complete(&task, &json!({})).await;
}

#[tokio::test]
async fn a_key_sees_the_names_of_its_tenant_and_no_other() {
    let lab = Lab::start().await;
    let (acme, globex) = (lab.key("acme", Role::Admin).await, lab.key("globex", Role::Admin).await);
    let workers = lab.worker_key(&["acme", "globex"], Role::Worker).await;
    let hostile = "night \"}\\ \u{2028}é 1\\n";
    acme.define("scrape").await;
    globex.define("secret-recipe").await;
    run_one(&acme, &workers, "scrape", Some(hostile)).await;
    run_one(&acme, &workers, "scrape", None).await;
    run_one(&globex, &workers, "secret-recipe", Some("buying acme")).await;
    run_one(&globex, &workers, "secret-recipe", Some(&"x".repeat(150))).await;

    let found = scrape(&acme).await;
    let labels = [("definition", "scrape"), ("job", hostile)];
    is(value(&found, NAMED[0], "", &labels), 1.0, "claimed");
    let completed = [labels[0], labels[1], ("outcome", "completed")];
    is(value(&found, NAMED[1], "", &completed), 1.0, "ended");
    assert!(value(&found, NAMED[2], "", &labels) >= 0.0);
    for family in NAMED {
        let own = BTreeSet::from([hostile, ""].map(|job| ("scrape".to_owned(), job.to_owned())));
        assert_eq!(names(&found, family), own, "{family}");
    }
    let text = acme.get("/metrics").await.text();
    assert!(!["secret-recipe", "buying", "globex"].into_iter().any(|name| text.contains(name)), "{text}");
    let ended = [("outcome", "completed"), ("class", "")];
    is(value(&found, "tidemill_attempts_ended_total", "", &ended), 4.0, "all tenants are added up");

    let theirs = scrape(&globex).await;
    let jobs: Vec<_> = names(&theirs, NAMED[0]).into_iter().map(|(_, job)| job).collect();
    assert_eq!(jobs, ["buying acme".to_owned(), "x".repeat(100)]);
    assert!(!globex.get("/metrics").await.text().contains("scrape"));
    let nothing = scrape(&lab.key("initech", Role::Reader).await).await;
    assert!(NAMED.iter().all(|family| names(&nothing, family).is_empty()));
}

#[tokio::test]
async fn a_server_without_keys_tells_the_names_of_its_tenant() {
    let lab = Lab::start().await;
    let client = lab.local();
    client.define("scrape").await;
    run_one(&client, &client, "scrape", Some("nightly")).await;
    let found = scrape(&client).await;
    is(value(&found, NAMED[0], "", &[("definition", "scrape"), ("job", "nightly")]), 1.0, "claimed");
}

#[tokio::test]
async fn names_beyond_the_bound_are_counted_together() {
    let lab = Lab::start().await;
    let client = lab.local();
    client.define("scrape").await;
    for number in 0..METRIC_NAMES_MAX + 3 {
        run_one(&client, &client, "scrape", Some(&format!("night {number}"))).await;
    }
    let found = scrape(&client).await;
    assert_eq!(names(&found, NAMED[0]).len(), METRIC_NAMES_MAX + 1);
    is(value(&found, NAMED[0], "", &[("definition", "scrape"), ("job", "other")]), 3.0, "others");
}

#[tokio::test]
async fn the_last_check_of_health_is_told() {
    let lab = Lab::start().await;
    let client = lab.local();
    let checked = "tidemill_health_last_check_timestamp_seconds";
    is(plain(&scrape(&client).await, checked), 0.0, "before the first check");
    client.define("work").await;
    client.submit(&[("a", &[]), ("b", &[])]).await;
    for task in client.claim(2).await {
        let begun = json!({"requestId": task["requestId"], "fence": task["fence"], "pid": 7});
        client.post("/v1/worker/begin", &begun).await.expect(200);
    }
    client.post("/v1/health-check", &json!({})).await.expect(200);
    let found = scrape(&client).await;
    for (health, count) in [("healthy", 2.0), ("warning", 0.0), ("critical", 0.0), ("overtime", 0.0)] {
        is(value(&found, "tidemill_health_tasks", "", &[("health", health)]), count, health);
    }
    is(value(&found, "tidemill_health_findings", "", &[("kind", "stalled_jobs")]), 0.0, "findings");
    assert!(plain(&found, checked) > 1.6e9);
}

#[tokio::test]
async fn a_scrape_writes_nothing() {
    let lab = Lab::start().await;
    let client = lab.local();
    client.define("work").await;
    client.submit(&[("a", &[])]).await;
    let first = scrape(&client).await;
    for _ in 0..5 {
        scrape(&client).await;
    }
    let last = scrape(&client).await;
    for name in ["tidemill_commits_total", "tidemill_commit_bytes_total", "tidemill_attempts_claimed_total"] {
        is(plain(&last, name), plain(&first, name), name);
    }
    is(
        value(&last, "tidemill_command_seconds", "_count", &[]),
        value(&first, "tidemill_command_seconds", "_count", &[]),
        "commands",
    );
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn the_process_tells_what_it_uses() {
    let lab = Lab::start().await;
    let found = scrape(&lab.local()).await;
    assert!(plain(&found, "process_resident_memory_bytes") > 1e6);
    assert!(plain(&found, "process_virtual_memory_bytes") >= plain(&found, "process_resident_memory_bytes"));
    assert!(plain(&found, "process_cpu_seconds_total") < 1e6);
    assert!(plain(&found, "process_open_fds") >= 3.0);
    assert!(plain(&found, "process_threads") >= 2.0);
    let now = tidemill_engine::clock::Clock::now(&tidemill_engine::clock::SystemClock::start()).millis();
    let began = plain(&found, "process_start_time_seconds");
    #[expect(clippy::cast_precision_loss, reason = "seconds since 1970 fit")]
    let age = (now / 1_000) as f64 - began;
    assert!((-2.0..86_400.0).contains(&age), "it began {age} s ago");
}

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn text_of(path: &str) -> String {
    std::fs::read_to_string(repository(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[tokio::test]
async fn every_metric_is_documented_and_every_documented_one_is_there() {
    let lab = Lab::start().await;
    let found: BTreeSet<String> = scrape(&lab.local()).await.into_keys().collect();
    let page = text_of("docs/reference/metrics.md");
    // The first cell of a row of a table: `name` or `name{label,label}`.
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let documented: BTreeSet<String> =
        rows.map(|(name, _)| name.split('{').next().unwrap_or_default().to_owned()).collect();
    let missing: Vec<_> = found.difference(&documented).collect();
    assert!(missing.is_empty(), "not in docs/reference/metrics.md: {missing:?}");
    let gone: Vec<_> = documented.difference(&found).collect();
    assert!(gone.is_empty(), "only in docs/reference/metrics.md: {gone:?}");
}

/// Words of the query language that are no metrics.
const WORDS: [&str; 26] = [
    "sum",
    "by",
    "without",
    "rate",
    "increase",
    "histogram_quantile",
    "max",
    "min",
    "avg",
    "count",
    "and",
    "or",
    "unless",
    "on",
    "ignoring",
    "time",
    "clamp_min",
    "clamp_max",
    "topk",
    "vector",
    "absent",
    "delta",
    "group_left",
    "group_right",
    "offset",
    "bool",
];

/// The metrics that an expression names.
fn names_in(expression: &str) -> BTreeSet<String> {
    let mut plain = String::new();
    let mut depth = 0_u32;
    for character in expression.chars() {
        match character {
            '{' | '[' => depth += 1,
            '}' | ']' => depth -= 1,
            _ if depth == 0 => plain.push(character),
            _ => {}
        }
    }
    // Labels that results are grouped by.
    for word in ["by", "without", "on", "ignoring"] {
        while let Some(at) = plain.find(&format!(" {word} (")) {
            let end = plain[at..].find(')').expect("a list ends") + at;
            plain.replace_range(at..=end, " ");
        }
    }
    let is_part = |c: char| c == '_' || c == ':' || c.is_ascii_alphanumeric();
    let words = plain.split(|c: char| !is_part(c)).filter(|word| !word.is_empty());
    let names = words.filter(|word| !word.starts_with(|c: char| c.is_ascii_digit()) && !WORDS.contains(word));
    names.map(str::to_owned).collect()
}

#[test]
fn names_are_found_in_expressions() {
    let names = |text| names_in(text).into_iter().collect::<Vec<_>>();
    assert_eq!(
        names("histogram_quantile(0.99, sum by (le, x) (rate(a_bucket{b=\"c\"}[5m]))) > 0.5 and d == 1e3"),
        ["a_bucket", "d"]
    );
    assert_eq!(names("a / clamp_min(b_total, 1)"), ["a", "b_total"]);
}

/// Every name that expressions use must be a series of this family.
fn check(expressions: &[String], families: &Families, place: &str) {
    assert!(expressions.len() >= 8, "{place} has {} expressions", expressions.len());
    for expression in expressions {
        let names = names_in(expression);
        assert!(!names.is_empty(), "{place}: {expression}");
        for name in names {
            // The scraper's own.
            if name == "up" {
                continue;
            }
            let is_plain = families.get(&name).is_some_and(|family| family.kind != "histogram");
            let of_histogram = ["_bucket", "_sum", "_count"].into_iter().any(|ending| {
                let family = name.strip_suffix(ending).and_then(|name| families.get(name));
                family.is_some_and(|family| family.kind == "histogram")
            });
            assert!(is_plain || of_histogram, "{place} names {name}, which is not there: {expression}");
        }
    }
}

fn expressions_of(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get("expr").and_then(Value::as_str).map(str::to_owned));
            fields.values().for_each(|field| expressions_of(field, found));
        }
        Value::Array(items) => items.iter().for_each(|item| expressions_of(item, found)),
        _ => {}
    }
}

#[tokio::test]
async fn the_grafana_dashboard_uses_only_what_is_there() {
    let lab = Lab::start().await;
    let families = scrape(&lab.local()).await;
    let dashboard: Value = serde_json::from_str(&text_of("deploy/grafana/tidemill.json")).unwrap();
    let mut expressions = Vec::new();
    expressions_of(&dashboard, &mut expressions);
    check(&expressions, &families, "the dashboard");
    // Panels stand beside one another, and each has a number and a source of its own.
    let panels = dashboard["panels"].as_array().unwrap();
    let mut taken = BTreeSet::new();
    let mut numbers = BTreeSet::new();
    for panel in panels {
        assert!(numbers.insert(panel["id"].as_u64().unwrap()), "{}", panel["title"]);
        let place = |name: &str| panel["gridPos"][name].as_u64().unwrap();
        for x in place("x")..place("x") + place("w") {
            for y in place("y")..place("y") + place("h") {
                assert!(x < 24 && taken.insert((x, y)), "{} lies on another", panel["title"]);
            }
        }
        if panel["type"] != "row" {
            assert_eq!(panel["datasource"]["uid"], "${source}", "{}", panel["title"]);
            assert!(!panel["targets"].as_array().unwrap().is_empty(), "{}", panel["title"]);
        }
    }
}

#[tokio::test]
async fn the_alert_rules_use_only_what_is_there() {
    let lab = Lab::start().await;
    let families = scrape(&lab.local()).await;
    let rules = text_of("deploy/prometheus/alerts.yml");
    let after = |what: &str| {
        let found = rules.lines().filter_map(|line| line.trim().trim_start_matches("- ").strip_prefix(what));
        found.map(|text| text.trim().to_owned()).collect::<Vec<_>>()
    };
    let expressions = after("expr:");
    check(&expressions, &families, "alerts.yml");
    assert!(expressions.iter().all(|text| !text.starts_with(['|', '>', '"'])), "each on one line, unquoted");
    let names: BTreeSet<String> = after("alert:").into_iter().collect();
    for count in [after("alert:").len(), after("summary:").len(), after("severity:").len(), names.len()] {
        assert_eq!(count, expressions.len(), "each has its name, severity and summary");
    }
}
