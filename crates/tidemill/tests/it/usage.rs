//! What agents used and may use, as users see it.

use serde_json::{Value, json};

use crate::sandbox::Sandbox;

/// A command that says what an agent would, and an agent that must not start after it.
const JOB: &str = r#"
name: costly
budget: { usd: 0.5 }
tasks:
  - taskId: scrape
    run: |
      echo '@@tidemill {"kind":"result","output":{"n":1},"usage":{"inputTokens":1200,"outputTokens":34,"turns":3,"costUsd":0.75}}'
  - taskId: tags
    agent: Find tags.
    dependsOn: [scrape]
  - taskId: fonts
    run: "true"
    dependsOn: [scrape]
"#;

fn stopped(sandbox: &Sandbox) -> Value {
    sandbox.write("job.yaml", JOB);
    let ran = sandbox.run(&["run", "job.yaml", "--json"]);
    assert_eq!(ran.code, 1, "{ran:#?}");
    ran.json()
}

#[test]
fn a_budget_stops_an_agent_and_the_sums_are_shown() {
    let sandbox = Sandbox::new();
    let report = stopped(&sandbox);
    assert_eq!((&report["usage"]["costUsd"], &report["usage"]["turns"]), (&json!(0.75), &json!(3)));
    let tags = &report["tasks"]["tags"];
    assert_eq!(tags["error"], "the job's budget of 0.50 USD is used up: 0.75 USD");
    assert_eq!(report["tasks"]["fonts"]["status"], "completed");
    let job = report["jobId"].as_str().unwrap();

    let get = sandbox.run(&["jobs", "get", job]).ok().out;
    assert!(get.contains("used 1,234 tokens in 3 turns, 0.75 USD\n"), "{get}");
    assert!(get.contains("budget 0.75 of 0.50 USD; used up: no agent task starts\n"), "{get}");
    for (by, key) in [("job", job), ("definition", "scrape"), ("tenant", "default")] {
        let table = sandbox.run(&["usage", "--by", by]).ok().out;
        let mut lines = table.lines();
        let heading = lines.next().unwrap();
        assert!(heading.starts_with(&by.to_uppercase()) && heading.ends_with("USD"), "{table}");
        let row = lines.next().unwrap();
        assert!(row.starts_with(key) && row.ends_with("  0.75"), "{table}");
        assert_eq!(lines.next(), None, "{table}");
    }
    let sums = sandbox.run(&["usage", "--json"]).ok().json();
    assert_eq!(sums["items"][0]["inputTokens"], 1_200);
    assert_eq!(sandbox.run(&["usage", "--to", "2020-01-01", "--json"]).ok().json(), json!({ "items": [] }));

    let again = sandbox.run(&["run", "job.yaml", "--resume"]);
    assert!(again.words.contains("used 1,234 tokens in 3 turns, 0.75 USD"), "{again:#?}");
    assert_eq!(again.code, 1, "the budget is used up still");
    let hint = format!("raise it first: tidemill jobs budget {job} --usd DOLLARS");
    assert!(again.words.contains(&hint), "{again:#?}");
    let raised = sandbox.run(&["jobs", "budget", job, "--usd", "2"]).ok().out;
    assert_eq!(raised, "0.75 of 2.00 USD\n");
    let get = sandbox.run(&["jobs", "get", job, "--json"]).ok().json();
    assert_eq!(get["budget"]["usedUp"], false);
    sandbox.run(&["jobs", "budget", job, "--none"]).ok();
    assert_eq!(sandbox.run(&["jobs", "get", job, "--json"]).ok().json().get("budget"), None);
}

#[test]
fn a_tenants_budget_is_set_shown_and_removed() {
    let sandbox = Sandbox::new();
    stopped(&sandbox);
    let none = sandbox.run(&["usage", "budget", "show"]);
    assert_eq!(none.code, 1, "{none:#?}");
    let set =
        sandbox.run(&["usage", "budget", "set", "--usd", "5", "--tokens", "1000", "--period", "day"]).ok();
    assert_eq!(
        set.out,
        "0.75 of 5.00 USD a day, 1,234 of 1,000 tokens a day; used up: no agent task starts\n"
    );
    let shown = sandbox.run(&["usage", "budget", "show", "--json"]).ok().json();
    assert_eq!((&shown["period"], &shown["usedUp"]), (&json!("day"), &json!(true)));
    sandbox.run(&["usage", "budget", "clear"]).ok();
    assert_eq!(sandbox.run(&["usage", "budget", "show"]).code, 1);
    for wrong in [
        &["usage", "budget", "set"][..],
        &["usage", "budget", "set", "--usd", "-1"],
        &["usage", "budget", "set", "--usd", "5", "--period", "week"],
        &["usage", "--from", "yesterday"],
        &["usage", "--by", "week"],
        &["jobs", "budget", "job-1"],
        &["jobs", "budget", "job-1", "--usd", "1", "--none"],
    ] {
        let ran = sandbox.run(wrong);
        assert_eq!(ran.code, 2, "{wrong:?}: {ran:#?}");
    }
}
