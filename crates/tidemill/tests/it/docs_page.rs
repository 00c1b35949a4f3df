//! The page `/docs` of a server.

use std::fmt::Write as _;
use std::process::Command;

use crate::parts;
use crate::sandbox::Sandbox;

/// The curl examples of `/docs`, pasted with ids in place of the words in capitals, and without the `#`.
#[test]
fn every_call_works_when_pasted() {
    if !parts::has_curl() {
        return;
    }
    let sandbox = Sandbox::new();
    let server = sandbox.serve(&[], &[]);
    sandbox.write("example.yaml", "name: example\ncommand: [cat]\n");
    sandbox.write(
        "job.yaml",
        "name: story\ntasks:\n- {taskId: a, run: 'echo hi'}\n- {taskId: b, run: 'false', retry: 1}\n",
    );
    sandbox.write("example.js", "return {};\n");
    sandbox.write("FILE", "a file\n");
    sandbox.run(&["definitions", "create", "example.yaml"]).ok();
    sandbox.run(&["scripts", "put", "example", "example.js"]).ok();
    sandbox.run(&["subscriptions", "add", "--id", "example", "--script", "example", "--type", "a"]).ok();
    assert_eq!(sandbox.run(&["submit", "job.yaml", "--watch"]).code, 1, "a task of it fails");
    let job =
        sandbox.run(&["jobs", "list", "--json"]).json()["items"][0]["jobId"].as_str().unwrap().to_owned();
    let letter = sandbox.run(&["dead-letters", "list", "--json"]).json()["items"][0]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let request = format!("{job}_a");
    let page = Command::new("curl").args(["-sS", &format!("{}/docs", server.url)]).output().unwrap().stdout;
    let page = String::from_utf8(page).unwrap();
    let examples = page.split("<pre>").skip(1).map(|rest| rest.split("</pre>").next().unwrap());
    let mut script = String::new();
    // What only looks comes first, and what is a comment last.
    let mut examples: Vec<_> = examples.collect();
    examples.sort_by_key(|example| (example.starts_with('#'), example.contains(" -X ")));
    for (number, example) in examples.iter().enumerate() {
        let example =
            example.replace("&quot;", "\"").replace("&#39;", "'").replace("&amp;", "&").replace("&gt;", ">");
        let example: String =
            example.lines().map(|line| [line.trim_start_matches("# "), "\n"].concat()).collect();
        let letters = format!("dead-letters/{letter}");
        let example = [
            ("JOB_ID", job.as_str()),
            ("REQUEST_ID", &request),
            ("dead-letters/ID", &letters),
            ("scripts/ID", "scripts/example"),
            ("subscriptions/ID", "subscriptions/example"),
            ("task-definitions/NAME", "task-definitions/example"),
            ("artifacts/PATH", "artifacts/r1-a1/logs/output.log"),
            ("blobs/REQUEST_ID/FENCE/PATH", "blobs/REQUEST_ID/1/logs/output.log"),
            ("FENCE/TASK_ID/PATH", "1/a/page.html"),
            ("FENCE", "1"),
        ]
        .iter()
        .fold(example, |example, (word, value)| example.replace(word, value));
        let at_most = if example.contains("/v1/stream") { 1 } else { 30 };
        let _ = writeln!(
            script,
            "{} -sS -m {at_most} -o body-{number} -w '%{{http_code}}\\n'",
            example.trim_end()
        );
    }
    sandbox.write("page.sh", &script);
    let mut bash = Command::new("bash");
    bash.arg("page.sh");
    let output = sandbox.in_its_place(bash).env("TIDEMILL_API_KEY", "").output().unwrap();
    let statuses = String::from_utf8(output.stdout).unwrap();
    assert_eq!(statuses.lines().count(), examples.len(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut problems = Vec::new();
    for (number, (status, example)) in statuses.lines().zip(&examples).enumerate() {
        let body = sandbox.read(&format!("body-{number}"));
        let refused = [
            "INVALID_JSON",
            "INVALID_FIELD",
            "UNKNOWN_FIELD",
            "MISSING_FIELD",
            "NO_SUCH_ROUTE",
            "INVALID_PARAMETER",
        ];
        let is_wrong = status >= "500" && status != "000"
            || ["405", "415"].contains(&status)
            || refused.iter().any(|code| body.contains(&format!("\"code\":\"{code}\"")));
        // Nothing here is parked, claimed or in error: what is left of these words is not found.
        let is_known = !example.contains(" -X ")
            && ![
                "CODE",
                "EXECUTION_ID",
                "BULK_ID",
                "executions/ID",
                "/v1/worker/",
                "/v1/stream",
                "/v1/budget",
                "/health-check",
            ]
            .iter()
            .any(|word| example.contains(word));
        if is_wrong || is_known && status != "200" {
            problems.push(format!("{status} {example}\n{}", body.get(..400).unwrap_or(&body)));
        }
    }
    assert!(problems.is_empty(), "{} of {}\n{}", problems.len(), examples.len(), problems.join("\n\n"));
}
