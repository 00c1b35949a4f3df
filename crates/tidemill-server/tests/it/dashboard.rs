//! The dashboard over HTTP: which users get in, what forms may do, and that texts stay texts.

use std::fmt::Write;

use serde_json::{Value, json};
use tidemill_model::Role;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::lab::{Answer, Client, LONG, Lab, SAMPLE};

const FORM: &str = "application/x-www-form-urlencoded";
pub(crate) const PAGES: [&str; 15] = [
    "/",
    "/submit",
    "/jobs",
    "/tasks",
    "/definitions",
    "/workers",
    "/events",
    "/errors",
    "/parked",
    "/dead-letters",
    "/scripts",
    "/scripts/new",
    "/health",
    "/usage",
    "/settings",
];

/// A browser of few words: it keeps its cookie and knows where it is.
pub(crate) struct Browser {
    pub(crate) client: Client,
    cookie: Option<String>,
}

impl Browser {
    pub(crate) fn new(client: &Client) -> Self {
        Self { client: Client { token: None, ..client.clone() }, cookie: None }
    }

    /// A browser that logged in with the client's key.
    pub(crate) async fn logged_in(client: &Client) -> Self {
        let mut browser = Self::new(client);
        let key = client.token.clone().unwrap();
        let answer = browser.post("/login", &[("key", &key)]).await;
        assert_eq!((answer.status, answer.header("location")), (303, Some("/")), "{}", answer.text());
        browser
    }

    fn origin(&self) -> String {
        format!("http://{}", self.client.address)
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        let mut headers = Vec::new();
        if let Some(cookie) = &self.cookie {
            headers.push(("Cookie", cookie.as_str()));
        }
        self.client.send("GET", path, &headers, b"").await
    }

    /// Sends a form as a page of this server would.
    pub(crate) async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let origin = self.origin();
        self.post_from(&origin, path, fields).await
    }

    async fn post_from(&mut self, origin: &str, path: &str, fields: &[(&str, &str)]) -> Answer {
        let body: Vec<_> = fields.iter().map(|(name, text)| format!("{name}={}", encoded(text))).collect();
        let mut headers = vec![("Content-Type", FORM), ("Origin", origin)];
        if let Some(cookie) = &self.cookie {
            headers.push(("Cookie", cookie.as_str()));
        }
        let answer = self.client.send("POST", path, &headers, body.join("&").as_bytes()).await;
        let set = answer.headers.iter().filter(|(name, _)| name == "set-cookie");
        for (_, cookie) in set.filter(|(_, cookie)| cookie.starts_with("tidemill_session=")) {
            self.cookie = cookie.split(';').next().map(ToOwned::to_owned);
        }
        answer
    }

    /// What a stream of this session says.
    async fn live(&self, path: &str) -> Live {
        let cookie = self.cookie.clone().unwrap();
        Live::open_with(&self.client, path, &[("Cookie", &cookie)]).await
    }

    /// The token that the forms of a page hold.
    pub(crate) async fn token(&self, path: &str) -> String {
        let page = self.get(path).await.text();
        let (_, rest) = page.split_once("name=\"form_token\" value=\"").expect("the page has a form");
        rest.split('"').next().unwrap().to_owned()
    }
}

/// What a page sends as it changes.
pub(crate) struct Live {
    connection: TcpStream,
    heard: String,
}

impl Live {
    pub(crate) async fn open(client: &Client, path: &str) -> Self {
        Self::open_with(client, path, &[]).await
    }

    async fn open_with(client: &Client, path: &str, headers: &[(&str, &str)]) -> Self {
        let mut connection = TcpStream::connect(client.address).await.unwrap();
        let head = client.head("GET", path, headers, "HTTP/1.1") + "\r\n";
        connection.write_all(head.as_bytes()).await.unwrap();
        Self { connection, heard: String::new() }
    }

    /// Waits until nothing more can come.
    async fn read_to_end(&mut self) {
        // The last chunk of a body is an empty one.
        self.read_until("\r\n0\r\n\r\n").await;
    }

    /// All that was heard once `text` is part of it.
    pub(crate) async fn read_until(&mut self, text: &str) -> &str {
        let end = tokio::time::Instant::now() + LONG;
        while !self.heard.contains(text) {
            let mut bytes = vec![0; 64 * 1024];
            let read = tokio::time::timeout_at(end, self.connection.read(&mut bytes)).await;
            let count = read.unwrap_or_else(|_| panic!("no {text:?} in {}", self.heard)).unwrap();
            assert!(count > 0, "it ended without {text:?}: {}", self.heard);
            self.heard += &String::from_utf8_lossy(&bytes[..count]);
        }
        &self.heard
    }
}

pub(crate) fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut out, byte| {
        let _ = write!(out, "%{byte:02x}");
        out
    })
}

async fn job_with_a_failed_task(client: &Client, worker: &Client) -> (String, Value) {
    client.define("work").await;
    let job = client.submit(&SAMPLE).await;
    let task = worker.claim(1).await.remove(0);
    worker.fail(&task).await;
    (job, task)
}

#[tokio::test]
async fn without_keys_the_local_user_needs_no_login_and_others_do_not_come_in() {
    let lab = Lab::start().await;
    let browser = Browser::new(&lab.local());
    for path in PAGES {
        let page = browser.get(path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.text());
        let policy = page.header("content-security-policy").unwrap();
        for part in ["default-src 'none'", "script-src 'self'", "style-src 'self'", "form-action 'self'"] {
            assert!(policy.contains(part) && !policy.contains("unsafe"), "{path}: {policy}");
        }
        assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(page.header("cache-control"), Some("no-store"));
        assert_eq!(page.header("cross-origin-resource-policy"), Some("same-origin"), "{path}");
        let html = page.text();
        for inline in [" style=", "<style", " onclick=", "javascript:", "http://", "https://"] {
            let html = html.replace("http://www.w3.org/2000/svg", "");
            assert!(!html.contains(inline), "{path} has {inline}");
        }
        let port = lab.address.port();
        let foreign = format!("evil.example:{port}");
        let answer = lab.local().send("GET", path, &[("Host", &foreign)], b"").await;
        assert_eq!((answer.status, answer.code().as_str()), (403, "FOREIGN_HOST"), "{path}");
    }
    let login = browser.get("/login").await;
    assert_eq!((login.status, login.header("location")), (303, Some("/")));
    let asset = browser.get("/").await.text();
    let (_, rest) = asset.split_once("href=\"/assets/").unwrap();
    let style = browser.get(&format!("/assets/{}", rest.split('"').next().unwrap())).await;
    assert_eq!((style.status, style.header("content-type")), (200, Some("text/css; charset=utf-8")));
    assert_eq!(browser.get("/assets/other.css").await.status, 404);
}

#[tokio::test]
async fn with_keys_a_login_leads_to_the_page_and_a_logout_ends_it() {
    let lab = Lab::start().await;
    let admin = lab.key("acme", Role::Admin).await;
    let mut browser = Browser::new(&admin);
    for path in PAGES {
        let answer = browser.get(path).await;
        assert_eq!(answer.status, 303, "{path}");
        assert!(answer.header("location").unwrap().starts_with("/login"), "{path}");
    }
    assert_eq!(browser.get("/live/").await.status, 401);
    assert_eq!(
        browser.get("/jobs?status=failed").await.header("location"),
        Some("/login?next=%2Fjobs%3Fstatus%3Dfailed")
    );
    assert_eq!(browser.get("/login").await.status, 200);
    let wrong = browser.post("/login", &[("key", "tm_nobody_knows")]).await;
    assert_eq!((wrong.status, browser.cookie.is_none()), (401, true), "{}", wrong.text());
    let worker = lab.worker_key(&["acme"], Role::Worker).await;
    let refused = browser.post("/login", &[("key", worker.token.as_deref().unwrap())]).await;
    assert_eq!((refused.status, browser.cookie.is_none()), (403, true));
    assert!(refused.text().contains("reader, producer or admin"), "{}", refused.text());
    let foreign =
        browser.post_from("http://evil.example", "/login", &[("key", admin.token.as_deref().unwrap())]).await;
    assert_eq!((foreign.status, browser.cookie.is_none()), (403, true));

    let key = admin.token.clone().unwrap();
    let answer = browser.post("/login", &[("key", &key), ("next", "/jobs?status=failed")]).await;
    assert_eq!((answer.status, answer.header("location")), (303, Some("/jobs?status=failed")));
    let cookie = answer.header("set-cookie").unwrap().to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    assert!(!cookie.contains(&key), "the key itself is in no cookie");
    for path in PAGES {
        assert_eq!(browser.get(path).await.status, 200, "{path}");
    }
    let elsewhere = Browser::logged_in(&admin).await;
    let bare = browser.post("/logout", &[]).await;
    assert_eq!(bare.status, 403, "a logout without its token is refused");
    let token = browser.token("/jobs").await;
    let out = browser.post("/logout", &[("form_token", &token)]).await;
    assert_eq!((out.status, out.header("location")), (303, Some("/login")));
    let old = Browser {
        client: browser.client.clone(),
        cookie: Some(cookie.split(';').next().unwrap().to_owned()),
    };
    assert_eq!(old.get("/").await.status, 303, "the cookie of an ended session opens nothing");
    assert_eq!(elsewhere.get("/").await.status, 200, "another session of the key goes on");
}

#[tokio::test]
async fn a_session_ends_with_its_key() {
    let lab = Lab::start().await;
    let admin = lab.key("acme", Role::Admin).await;
    let reader = lab.key("acme", Role::Reader).await;
    let browser = Browser::logged_in(&reader).await;
    assert_eq!(browser.get("/jobs").await.status, 200);
    let keys = admin.get("/v1/keys").await.expect(200);
    let id =
        keys["items"].as_array().unwrap().iter().find(|key| key["role"] == "reader").unwrap()["id"].clone();
    admin.delete(&format!("/v1/keys/{}", id.as_str().unwrap())).await.expect(200);
    assert_eq!(browser.get("/jobs").await.header("location"), Some("/login?next=%2Fjobs"));
    assert_eq!(browser.get("/live/jobs").await.status, 401);
}

#[tokio::test]
async fn a_form_without_its_token_or_from_elsewhere_changes_nothing() {
    let lab = Lab::start().await;
    let admin = lab.key("acme", Role::Admin).await;
    admin.define("work").await;
    let job = admin.submit(&SAMPLE).await;
    let mut browser = Browser::logged_in(&admin).await;
    let path = format!("/jobs/{job}/cancel");
    let token = browser.token(&format!("/jobs/{job}")).await;
    let other = Browser::logged_in(&admin).await.token("/jobs").await;
    for (origin, fields) in [
        (browser.origin(), vec![]),
        (browser.origin(), vec![("form_token", "")]),
        (browser.origin(), vec![("form_token", other.as_str())]),
        ("http://evil.example".to_owned(), vec![("form_token", token.as_str())]),
        ("null".to_owned(), vec![("form_token", token.as_str())]),
        (format!("http://localhost:{}", lab.address.port()), vec![("form_token", token.as_str())]),
    ] {
        let answer = browser.post_from(&origin, &path, &fields).await;
        assert_eq!(answer.status, 403, "{origin} {fields:?}");
    }
    let cookie = browser.cookie.clone().unwrap();
    let own = browser.origin();
    for (headers, why) in [
        (vec![("Content-Type", FORM), ("Cookie", cookie.as_str())], "no origin"),
        (vec![("Content-Type", "text/plain"), ("Origin", own.as_str()), ("Cookie", &cookie)], "no form"),
        (
            vec![
                ("Content-Type", FORM),
                ("Origin", &own),
                ("Sec-Fetch-Site", "cross-site"),
                ("Cookie", &cookie),
            ],
            "another site",
        ),
    ] {
        let body = format!("form_token={token}");
        let answer = browser.client.send("POST", &path, &headers, body.as_bytes()).await;
        assert_eq!(answer.status, 403, "{why}");
    }
    // A cookie is no key of the API.
    let api = browser.client.send("GET", "/v1/jobs", &[("Cookie", &cookie)], b"").await;
    assert_eq!(api.status, 401);
    assert_eq!(admin.get(&format!("/v1/jobs/{job}")).await.expect(200)["status"], "running");
    let done = browser.post(&path, &[("form_token", &token), ("reason", "enough")]).await;
    assert_eq!((done.status, done.header("location").unwrap()), (303, format!("/jobs/{job}").as_str()));
    assert_eq!(admin.get(&format!("/v1/jobs/{job}")).await.expect(200)["status"], "cancelled");
}

#[tokio::test]
async fn forms_do_what_the_role_allows_and_no_more() {
    let lab = Lab::start().await;
    let admin = lab.key("acme", Role::Admin).await;
    let worker = lab.worker_key(&["acme"], Role::Worker).await;
    let (job, task) = job_with_a_failed_task(&admin, &worker).await;
    let request = task["requestId"].as_str().unwrap();
    let reader = lab.key("acme", Role::Reader).await;
    let producer = lab.key("acme", Role::Producer).await;
    for (client, may_submit, may_admin) in [(&reader, false, false), (&producer, true, false)] {
        let mut browser = Browser::logged_in(client).await;
        let token = browser.token("/jobs").await;
        for (path, needs_admin) in [
            (format!("/jobs/{job}/resume"), false),
            (format!("/tasks/{request}/retry"), false),
            ("/settings/keys".to_owned(), true),
            ("/usage/budget".to_owned(), true),
            ("/scripts/new".to_owned(), true),
        ] {
            let fields = [
                ("form_token", token.as_str()),
                ("role", "admin"),
                ("usd", "1"),
                ("period", "day"),
                ("name", "x"),
                ("source", "return 1"),
                ("deed", "save"),
            ];
            let status = browser.post(&path, &fields).await.status;
            let may = if needs_admin { may_admin } else { may_submit };
            assert_eq!(status == 403, !may, "{path}: {status}");
        }
        let page = browser.get(&format!("/jobs/{job}")).await.text();
        assert_eq!(page.contains("/cancel\""), may_submit);
        assert!(!browser.get("/settings").await.text().contains("Create key"));
    }
}

#[tokio::test]
async fn what_belongs_to_another_tenant_is_not_there() {
    let lab = Lab::start().await;
    let admin = lab.key("acme", Role::Admin).await;
    let worker = lab.worker_key(&["acme"], Role::Worker).await;
    let (job, task) = job_with_a_failed_task(&admin, &worker).await;
    let request = task["requestId"].as_str().unwrap();
    let script = json!({"id": "greet", "name": "greet", "source": "return 1"});
    admin.post("/v1/scripts", &script).await.expect(201);
    let retry = json!({"requestId": "given-up", "name": "work", "retry": {"maxAttempts": 1}});
    admin.post("/v1/tasks", &retry).await.expect(202);
    for task in worker.claim(9).await {
        let outcome = json!({"status": "failed", "error": "down", "errorCategory": "network"});
        worker.finish(&task, &outcome).await.expect(200);
    }
    let letters = admin.get("/v1/dead-letters").await.expect(200);
    let letter = letters["items"][0]["id"].as_str().expect("a task was given up");
    let stranger = lab.key("other", Role::Admin).await;
    let mut browser = Browser::logged_in(&stranger).await;
    let own = Browser::logged_in(&admin).await;
    let token = browser.token("/settings").await;
    for path in [
        format!("/jobs/{job}"),
        format!("/tasks/{request}"),
        format!("/tasks/{request}/log"),
        "/scripts/greet".to_owned(),
        format!("/dead-letters/{letter}"),
    ] {
        assert_eq!(own.get(&path).await.status, 200, "{path}");
        assert_eq!(browser.get(&path).await.status, 404, "{path}");
        assert_eq!(browser.get(&format!("/live{path}")).await.status, 404, "{path}");
    }
    for path in [
        format!("/jobs/{job}/cancel"),
        format!("/tasks/{request}/retry"),
        "/scripts/greet/delete".to_owned(),
        format!("/dead-letters/{letter}/replay"),
        format!("/dead-letters/{letter}/discard"),
    ] {
        assert_eq!(browser.post(&path, &[("form_token", &token)]).await.status, 404, "{path}");
    }
    for path in ["/", "/jobs", "/events", "/scripts"] {
        let page = browser.get(path).await.text();
        assert!(!page.contains(&job) && !page.contains("greet"), "{path}");
    }
    assert!(own.get("/dead-letters").await.text().contains(letter));
    assert!(!browser.get("/dead-letters").await.text().contains(letter));
    let letters = admin.get("/v1/dead-letters?state=open").await.expect(200);
    assert_eq!(letters["items"][0]["id"], letter, "it is as it was");
    for path in [
        "/jobs/nothing",
        "/jobs/job-00000000000000000000000000000000",
        "/tasks/nothing",
        "/dead-letters/nothing",
        "/executions/x",
    ] {
        assert_eq!(own.get(path).await.status, 404, "{path}");
    }
}

/// A tag in every text that somebody else may choose.
#[tokio::test]
async fn texts_stay_texts_on_every_page() {
    let lab = Lab::start().await;
    let admin = lab.key("acme", Role::Admin).await;
    let worker = lab.worker_key(&["acme"], Role::Worker).await;
    let bad = "<script>alert('x')</script><img src=x onerror=alert(1)>\"'";
    let file = json!({
        "name": bad,
        "tasks": [
            {"taskId": "a", "name": "work", "input": {"text": bad}, "labels": {"label": bad}},
            {"taskId": "b", "name": "work", "input": {bad: bad}},
            {"taskId": "c", "name": "work", "dependsOn": ["a"]},
        ],
    });
    admin.define("work").await;
    let job = admin.post("/v1/jobs", &file).await.expect(201)["jobId"].as_str().unwrap().to_owned();
    let tasks = worker.claim(2).await;
    worker.complete(&tasks[0], &json!({"text": bad})).await;
    let outcome = json!({"status": "failed", "error": bad, "errorCategory": "validation"});
    worker.finish(&tasks[1], &outcome).await.expect(200);
    let event = json!({"eventType": bad, "entityId": bad, "properties": {"text": bad}});
    admin.post("/v1/events", &event).await.expect(202);
    let script =
        json!({"id": "greet", "name": bad, "source": format!("// {bad}\nreturn 1"), "grants": ["publish"]});
    admin.post("/v1/scripts", &script).await.expect(201);
    let rules = json!({"scriptId": "greet", "eventType": bad, "filterRules": {"name": bad}});
    admin.post("/v1/subscriptions", &rules).await.expect(201);
    admin.post("/v1/keys", &json!({"role": "reader", "label": bad})).await.expect(201);

    let mut browser = Browser::logged_in(&admin).await;
    let one = tasks[0]["requestId"].as_str().unwrap();
    let other = tasks[1]["requestId"].as_str().unwrap();
    let asked = encoded(bad);
    let mut paths: Vec<String> = PAGES.iter().map(|path| (*path).to_owned()).collect();
    paths.extend([
        format!("/jobs/{job}"),
        format!("/tasks/{one}"),
        format!("/tasks/{other}"),
        "/scripts/greet".to_owned(),
        format!("/jobs?q={asked}"),
        format!("/events?type={asked}"),
        format!("/events?app={asked}&entity=APP/{asked}"),
        format!("/jobs?status={asked}"),
        format!("/usage?by={asked}"),
        format!("/jobs/{asked}"),
        format!("/tasks/{asked}"),
        format!("/events?from={asked}"),
        format!("/dead-letters?kind={asked}&state={asked}"),
    ]);
    let mut seen = 0;
    for path in &paths {
        let html = browser.get(path).await.text();
        for tag in ["<script>alert", "<img src=x", "onerror=alert(1)>\"'"] {
            assert!(!html.contains(tag), "{path}");
        }
        seen += usize::from(html.contains("&lt;script&gt;alert"));
    }
    assert!(seen >= 10, "the text is shown, but as a text: {seen}");
    let token = browser.token("/settings").await;
    let fields = [
        ("form_token", token.as_str()),
        ("name", bad),
        ("source", "@"),
        ("id", bad),
        ("eventType", bad),
        ("properties", bad),
    ];
    for deed in ["save", "test"] {
        let mut fields = fields.to_vec();
        fields.push(("deed", deed));
        let html = browser.post("/scripts/new", &fields).await.text();
        assert!(!html.contains("<script>alert") && html.contains("&lt;script&gt;alert"), "{deed}");
    }
    let note = Browser {
        client: browser.client.clone(),
        cookie: Some(format!("{}; tidemill_note={asked}", browser.cookie.clone().unwrap())),
    };
    let html = note.get("/jobs").await.text();
    assert!(!html.contains("<script>alert") && html.contains("&lt;script&gt;alert"));
}

#[tokio::test]
async fn a_page_sends_what_changed_and_a_list_says_what_its_detail_says() {
    let lab = Lab::start().await;
    let client = lab.local();
    client.define("work").await;
    let job = client.submit(&[("only", &[])]).await;
    let browser = Browser::new(&client);
    let page = browser.get(&format!("/jobs/{job}")).await.text();
    assert!(page.contains(&format!("data-live=\"/live/jobs/{job}\"")), "{page}");
    assert!(page.contains("id=\"n0\"") && page.contains("data-state=\"pending\""));
    let seq = page.split("data-seq=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let mut stream = Live::open(&client, &format!("/live/jobs/{job}?seq={seq}")).await;
    stream.read_until(": connected").await;
    let task = client.claim(1).await.remove(0);
    let begun = json!({"requestId": task["requestId"], "fence": task["fence"], "pid": 7});
    client.post("/v1/worker/begin", &begun).await.expect(200);
    stream.read_until("\"n0\":\"processing\"").await;
    client.complete(&task, &json!({"ok": true})).await;
    let sent = stream.read_until("\"n0\":\"completed\"").await;
    assert!(sent.contains("data-state=\\\"completed\\\""), "the head of the page too: {sent}");
    for path in ["/jobs", "/", &format!("/jobs/{job}")] {
        let page = browser.get(path).await.text();
        assert!(page.contains("<span class=\"state\" data-state=\"completed\">completed"), "{path}");
    }
    // Without scripts a page says the same.
    assert_eq!(client.get(&format!("/v1/jobs/{job}")).await.expect(200)["status"], "completed");
}

#[tokio::test]
async fn jobs_are_found_filtered_and_steered_many_at_a_time() {
    let lab = Lab::start().await;
    let client = lab.local();
    client.define("work").await;
    let mut jobs = Vec::new();
    for name in ["one", "two", "two"] {
        let file = json!({"name": name, "tasks": [{"taskId": "a", "name": "work"}]});
        jobs.push(client.post("/v1/jobs", &file).await.expect(201)["jobId"].as_str().unwrap().to_owned());
    }
    let mut browser = Browser::new(&client);
    let shown = |page: &str| jobs.iter().map(|job| page.contains(&format!("row-{job}"))).collect::<Vec<_>>();
    for (path, expected) in [
        ("/jobs".to_owned(), [true, true, true]),
        ("/jobs?q=two".to_owned(), [false, true, true]),
        (format!("/jobs?q={}", jobs[0]), [true, false, false]),
        ("/jobs?status=failed".to_owned(), [false, false, false]),
        ("/jobs?q=three".to_owned(), [false, false, false]),
    ] {
        assert_eq!(shown(&browser.get(&path).await.text()), expected, "{path}");
    }
    let token = browser.token("/jobs").await;
    let fields = [("form_token", token.as_str()), ("deed", "cancel"), ("job", &jobs[0]), ("job", &jobs[1])];
    assert_eq!(browser.post("/jobs/many", &fields).await.status, 303);
    let fields =
        [("form_token", token.as_str()), ("deed", "cancel-all"), ("status", "running"), ("name", "two")];
    assert_eq!(browser.post("/jobs/many", &fields).await.status, 303);
    assert_eq!(shown(&browser.get("/jobs?status=cancelled").await.text()), [true, true, true]);
    let fields = [("form_token", token.as_str()), ("deed", "resume"), ("job", &jobs[2])];
    assert_eq!(browser.post("/jobs/many", &fields).await.status, 303);
    assert_eq!(shown(&browser.get("/jobs?status=running").await.text()), [false, false, true]);
    let more = r#"{"tasks": [{"taskId": "b", "name": "work", "dependsOn": ["a"]}]}"#;
    let added =
        browser.post(&format!("/jobs/{}/tasks", jobs[2]), &[("form_token", &token), ("tasks", more)]).await;
    assert_eq!(added.status, 303, "{}", added.text());
    assert_eq!(client.get(&format!("/v1/jobs/{}", jobs[2])).await.expect(200)["totalTasks"], 2);
    let wrong =
        browser.post(&format!("/jobs/{}/tasks", jobs[2]), &[("form_token", &token), ("tasks", "{")]).await;
    assert_eq!(wrong.status, 400);
}

#[tokio::test]
async fn what_a_session_opened_ends_with_it() {
    let lab = Lab::start().await;
    let admin = lab.key("acme", Role::Admin).await;
    let worker = lab.key("acme", Role::Worker).await;
    admin.define("work").await;
    admin.submit(&[("a", &[])]).await;
    let task = worker.claim(1).await.remove(0);
    let id = task["requestId"].as_str().unwrap();
    let mut browser = Browser::logged_in(&admin).await;
    let mut live = browser.live("/live/jobs").await;
    live.read_until("data: ").await;
    let mut log = browser.live(&format!("/tasks/{id}/log?follow=true")).await;
    log.read_until("200 OK").await;
    let token = browser.token("/jobs").await;
    let answer = browser.post("/logout", &[("form_token", &token)]).await;
    assert_eq!(answer.status, 303);
    live.read_until("event: bye\ndata: out").await;
    log.read_to_end().await;
}

#[tokio::test]
async fn who_logs_in_again_ends_the_former_session() {
    let lab = Lab::start().await;
    let (admin, reader) = (lab.key("acme", Role::Admin).await, lab.key("acme", Role::Reader).await);
    let mut browser = Browser::logged_in(&admin).await;
    let former = Browser { client: browser.client.clone(), cookie: browser.cookie.clone() };
    assert_eq!(former.get("/jobs").await.status, 200);
    let key = reader.token.clone().unwrap();
    assert_eq!(browser.post("/login", &[("key", &key)]).await.status, 303);
    assert_eq!(browser.get("/jobs").await.status, 200);
    assert_eq!(former.get("/jobs").await.status, 303, "its word is good for nothing");
}

#[tokio::test]
async fn failed_logins_are_counted_and_a_large_one_is_not_read() {
    let lab = Lab::start().await;
    let admin = lab.key("acme", Role::Admin).await;
    let mut browser = Browser::new(&lab.local());
    for _ in 0..3 {
        let wrong = browser.post("/login", &[("key", "tm_nobody_knows")]).await;
        assert_eq!(wrong.status, 401);
    }
    let large = browser.post("/login", &[("key", &"x".repeat(4_096))]).await;
    assert_eq!((large.status, large.code().as_str()), (413, "TOO_LARGE"));
    assert!(large.text().contains("4096"), "{}", large.text());
    let metrics = admin.get("/metrics").await.text();
    assert!(metrics.contains("\ntidemill_logins_failed_total 3\n"), "{metrics}");
    // A user with a key gets in all the same.
    let key = admin.token.clone().unwrap();
    assert_eq!(browser.post("/login", &[("key", &key)]).await.status, 303);
}

/// A page that ignored an unknown filter would show all jobs to a user who asks for the failed ones.
#[tokio::test]
async fn a_list_refuses_filters_that_it_does_not_know() {
    let lab = Lab::start().await;
    let client = lab.local();
    let browser = Browser::new(&client);
    for (path, said) in [
        ("/jobs?status=faild", "status must be one of running, failing, failed, completed, cancelled"),
        ("/jobs?state=failed", "state is not a filter of this page"),
        ("/tasks?state=done", "state must be one of "),
        ("/errors?sort=x", "sort must be one of count, executions, recent"),
        ("/dead-letters?kind=x", "kind must be one of "),
        ("/events?kind=x", "kind is not a filter of this page"),
        ("/parked?x=1", "x is not a filter of this page"),
        ("/usage?by=week", "by must be one of day, definition, job"),
    ] {
        let answer = browser.get(path).await;
        assert_eq!(answer.status, 400, "{path}");
        assert!(answer.text().contains(said), "{path}: {}", answer.text());
    }
    for path in
        ["/jobs?status=failed&q=&cursor=", "/tasks?withoutJob=true", "/errors?state=all", "/usage?by=job"]
    {
        assert_eq!(browser.get(path).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn the_page_of_a_task_shows_what_ran() {
    let lab = Lab::start().await;
    let client = lab.local();
    let file = json!({"tasks": [
        {"taskId": "a", "run": "echo <b>one</b>", "env": {"MODE": "fast", "API_TOKEN": "literal-token-value"}},
    ]});
    let job = client.post("/v1/jobs", &file).await.expect(201)["jobId"].as_str().unwrap().to_owned();
    let browser = Browser::new(&client);
    let path = format!("/tasks/{job}_a");
    assert!(!browser.get(&path).await.text().contains("What ran"), "nothing ran yet");
    let task = client.claim(1).await.remove(0);
    let begin = json!({
        "requestId": task["requestId"], "fence": task["fence"], "pid": 42,
        "directory": "/out/x", "variables": ["PATH"],
    });
    client.post("/v1/worker/begin", &begin).await.expect(200);
    let page = browser.get(&path).await.text();
    for part in [
        "What ran",
        "/out/x",
        "echo &lt;b&gt;one&lt;/b&gt;",
        "process 42",
        "<code>MODE</code>",
        "<code>PATH</code>",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    assert!(!page.contains("literal-token-value"), "{page}");
    let told = client.get(&format!("/v1/tasks/{job}_a")).await.expect(200);
    assert_eq!(told["ran"]["command"], "echo <b>one</b>");
    assert_eq!((&told["ran"]["workerId"], &told["ran"]["processId"]), (&json!("w1"), &json!(42)));
    assert!(told["ran"].get("changedSince").is_none(), "{told}");

    let changed = json!({"tasks": [{"taskId": "a", "run": "echo two", "env": {"MODE": "slow"}}]});
    client.put(&format!("/v1/jobs/{job}/tasks"), &changed).await.expect(200);
    let ran = client.get(&format!("/v1/tasks/{job}_a")).await.expect(200)["ran"].take();
    assert_eq!((&ran["changedSince"], &ran["command"]), (&json!(true), &json!(null)), "{ran}");
    let page = browser.get(&path).await.text();
    let shown = page.split_once("What ran").expect("it is shown").1;
    assert!(shown.contains("was changed since") && !shown.contains("<code>MODE</code>"), "{shown}");
}
