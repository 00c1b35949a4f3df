//! The OpenAPI document: a snapshot, and what must be true of it.

use std::path::Path;

use serde_json::{Value, json};

use crate::lab::{Lab, job_file};

/// Where the document is kept for readers of the repository.
fn snapshot() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/openapi.json")
}

/// Every operation with its path and method.
pub(crate) fn operations(document: &Value) -> Vec<(String, String, Value)> {
    let paths = document["paths"].as_object().unwrap().iter();
    let all = paths.flat_map(|(path, operations)| {
        let operations = operations.as_object().unwrap().iter();
        operations.map(|(method, operation)| (path.clone(), method.to_uppercase(), operation.clone()))
    });
    all.collect()
}

#[test]
fn the_document_is_the_one_in_the_repository() {
    let document = tidemill_server::openapi_document();
    let text = serde_json::to_string_pretty(&document).unwrap() + "\n";
    if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
        std::fs::write(snapshot(), &text).unwrap();
    }
    let kept = std::fs::read_to_string(snapshot()).unwrap_or_default();
    assert!(
        kept == text,
        "docs/reference/openapi.json is out of date; look at the change and run the test again with UPDATE_SNAPSHOTS=1"
    );
}

#[test]
fn every_reference_leads_somewhere_and_every_part_of_a_path_is_described() {
    fn check(value: &Value, document: &Value) {
        match value {
            Value::Object(fields) => {
                if let Some(target) = fields.get("$ref").and_then(Value::as_str) {
                    assert!(document.pointer(target.trim_start_matches('#')).is_some(), "{target}");
                }
                fields.values().for_each(|field| check(field, document));
            }
            Value::Array(items) => items.iter().for_each(|item| check(item, document)),
            _ => {}
        }
    }
    let document = tidemill_server::openapi_document();
    check(&document, &document);
    let mut names = std::collections::BTreeSet::new();
    for (path, method, operation) in operations(&document) {
        assert!(names.insert(operation["operationId"].clone().to_string()), "{operation}");
        let params = operation["parameters"].as_array().cloned().unwrap_or_default();
        let described = params.iter().filter(|param| param["in"] == "path").count();
        assert_eq!(described, path.matches('{').count(), "{method} {path}");
        assert!(operation["tags"][0].is_string() && operation["summary"].is_string());
    }
}

#[tokio::test]
async fn the_server_shows_the_document_and_a_page_of_it() {
    let lab = Lab::start().await;
    let client = lab.local();
    let document = client.get("/openapi.json").await.expect(200);
    assert_eq!(document, tidemill_server::openapi_document());
    assert_eq!(document["openapi"], "3.1.0");
    let page = client.get("/docs").await;
    assert_eq!(page.status, 200);
    assert_eq!(page.header("content-type"), Some("text/html; charset=utf-8"));
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'"), "{policy}");
    let html = page.text();
    for (path, method, operation) in operations(&document) {
        assert!(html.contains(&format!("<code>{path}</code>")), "{method} {path}");
        assert!(html.contains(&format!("id=\"{}\"", operation["operationId"].as_str().unwrap())));
    }
    for outside in ["http://fonts", "https://", "<script", "src=", "url("] {
        assert!(!html.contains(outside), "{outside}");
    }
    let index = client.get("/").await;
    assert_eq!(index.status, 200);
    assert!(index.text().contains("/docs"));
}

/// An example of the page as a shell would read it: method, path and body. Comments do nothing.
fn pasted(example: &str, origin: &str) -> Option<(String, String, Option<String>)> {
    let example = example.replace("&#39;", "'").replace("&quot;", "\"").replace("&amp;", "&");
    if example.lines().all(|line| line.starts_with("# ")) {
        return None;
    }
    assert!(!example.contains('#'), "{example}");
    let method = example.split_once(" -X ").map_or("GET", |(_, rest)| rest.split(' ').next().unwrap());
    let body = example.split_once(" -d '").map(|(_, rest)| rest.split_once("' \\\n").unwrap().0.to_owned());
    let (_, path) = example.split_once(origin).unwrap_or_else(|| panic!("{example} does not name {origin}"));
    Some((method.to_owned(), path.to_owned(), body))
}

/// A user who copies an example reaches this server, and loses nothing.
#[tokio::test]
async fn examples_of_the_page_name_this_server_and_are_safe_to_paste() {
    let lab = Lab::start().await;
    let client = lab.local();
    client.define("work").await;
    client.put("/v1/budget", &json!({"usd": 100})).await.expect(200);
    for failing in [true, false, false] {
        client.post("/v1/jobs", &job_file(&[("a", &[])])).await.expect(201);
        if failing {
            client.fail(&client.claim(1).await[0]).await;
        }
    }
    let origin = format!("http://{}", lab.address);
    let html = client.get("/docs").await.text();
    let examples: Vec<_> =
        html.split("<pre>").skip(1).map(|rest| rest.split("</pre>").next().unwrap()).collect();
    assert_eq!(examples.len(), operations(&client.get("/openapi.json").await.expect(200)).len());
    let state = async || {
        let mut jobs = client.get("/v1/jobs").await.expect(200)["items"].as_array().unwrap().clone();
        jobs.retain(|job| job["name"] != "hello");
        let mut all = vec![Value::Array(jobs)];
        for path in ["/v1/budget", "/v1/keys", "/v1/task-definitions", "/v1/dead-letters"] {
            all.push(client.get(path).await.expect(200));
        }
        all
    };
    let before = state().await;
    let mut sent = 0;
    for (method, path, body) in examples.iter().filter_map(|example| pasted(example, &origin)) {
        assert!(!path.contains(['{', '}', ' ', '\'']), "{path}");
        if method == "GET" {
            continue;
        }
        let headers = [("Content-Type", "application/json")];
        let answer = client.send(&method, &path, &headers, body.as_deref().unwrap_or("").as_bytes()).await;
        assert!(answer.status < 500, "{method} {path}: {}", answer.text());
        assert!(!path.contains("/v1/jobs/cancel") || answer.status == 202, "{path}: {}", answer.text());
        sent += 1;
    }
    assert!(sent > 20, "{sent}");
    assert_eq!(state().await, before);
}

#[tokio::test]
async fn every_answer_is_closed_to_browsers() {
    let lab = Lab::start().await;
    let client = lab.local();
    for path in ["/v1/jobs", "/healthz", "/docs", "/", "/openapi.json", "/v1/nowhere", "/v1/jobs?limit=0"] {
        let answer = client.get(path).await;
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
        assert_eq!(answer.header("cross-origin-resource-policy"), Some("same-origin"), "{path}");
        assert!(answer.header("content-security-policy").unwrap().contains("default-src 'none'"), "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), None, "{path}");
    }
}

#[tokio::test]
async fn wrong_methods_are_told_the_right_ones() {
    let lab = Lab::start().await;
    let client = lab.local();
    let document = client.get("/openapi.json").await.expect(200);
    for (path, operations) in document["paths"].as_object().unwrap() {
        let known = operations.as_object().unwrap();
        for method in ["GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"] {
            if known.contains_key(&method.to_lowercase()) {
                continue;
            }
            let path = path
                .replace("{jobId}", "job-00000000000000000000000000000001")
                .replace("{id}", "0")
                .replace(['{', '}'], "");
            let answer = client.send(method, &path, &[], b"").await;
            assert_eq!(
                (answer.status, answer.code().as_str()),
                (405, "METHOD_NOT_ALLOWED"),
                "{method} {path}"
            );
            let allow = answer.header("allow").unwrap();
            for method in known.keys() {
                assert!(allow.contains(&method.to_uppercase()), "{allow}");
            }
        }
    }
    let head = client.send("HEAD", "/v1/jobs", &[], b"").await;
    assert_eq!((head.status, head.body.len()), (200, 0));
    assert_eq!(client.get("/v1/nowhere").await.problem(), (404, "NO_SUCH_ROUTE".into(), String::new()));
    for path in ["/v1/jobs/", "/v1/jobs//tasks"] {
        let answer = client.get(path).await;
        let (status, code, _) = answer.problem();
        assert_eq!((status, code.as_str()), (400, "INVALID_PARAMETER"), "{path}");
        assert_eq!(answer.json()["details"][0]["field"], "jobId", "{path}");
    }
}
