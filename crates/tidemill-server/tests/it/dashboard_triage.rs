//! Error triage in the dashboard: causes, what waits, and what people do about both.

use serde_json::{Value, json};
use tidemill_model::Role;

use crate::dashboard::{Browser, Live, encoded};
use crate::lab::{Client, Lab};
use crate::workflow::Keeper;

/// A tag in every text that somebody else may choose.
const BAD: &str = "<script>alert('x')</script><img src=x onerror=alert(1)>\"'";
/// Every answer is searched for this.
const TOKEN: &str = "AQCEAAAAKgAAAAMAAAAAAAAAAb7QkTokenOfTheSample==";

fn failed(execution: &str, code: &str, county: &str) -> Value {
    json!({
        "source": "elephant.workflow",
        "detail-type": "WorkflowEvent",
        "detail": {
            "executionId": execution, "county": county, "dataGroupLabel": "Seed", "status": "FAILED",
            "phase": "Transform", "step": "Transform", "taskToken": format!("{TOKEN}-{execution}"),
            "errors": [{"code": code, "details": {"line": 7}}],
        },
    })
}

async fn publish(client: &Client, events: &[Value]) {
    client.post("/v1/workflow-events", &json!(events)).await.expect(202);
}

/// A task of a job that failed and waits.
async fn parked_task(client: &Client, worker: &Client, error: &str) -> (String, String) {
    client.define("work").await;
    let file = json!({"name": "load", "tasks": [
        {"taskId": "a", "name": "work", "onFailure": "park", "retry": {"maxAttempts": 1}},
        {"taskId": "b", "name": "work", "dependsOn": ["a"]},
    ]});
    let job = client.post("/v1/jobs", &file).await.expect(201)["jobId"].as_str().unwrap().to_owned();
    let task = worker.claim(1).await.remove(0);
    let outcome = json!({"status": "failed", "error": error, "errorCategory": "validation"});
    worker.finish(&task, &outcome).await.expect(200);
    (job, task["requestId"].as_str().unwrap().to_owned())
}

async fn state_of(client: &Client, code: &str, execution: &str) -> String {
    let path = format!("/v1/workflow/occurrences?code={code}&executionId={execution}");
    client.get(&path).await.expect(200)["items"][0]["state"].as_str().unwrap().to_owned()
}

async fn is_parked(client: &Client, execution: &str) -> bool {
    client.get(&format!("/v1/workflow/executions/{execution}")).await.expect(200)["parked"] == true
}

#[tokio::test]
async fn causes_are_listed_searched_sorted_and_decided_about() {
    let lab = Lab::start().await;
    let client = lab.local();
    let events: Vec<_> = (0..3).map(|at| failed(&format!("e{at}"), "20Cook", "Cook")).collect();
    publish(&client, &events).await;
    publish(&client, &[failed("e9", "31Lee", "Lee")]).await;
    let mut browser = Browser::new(&client);
    let shown = |page: &str| ["20Cook", "31Lee"].map(|code| page.contains(&format!("/errors/{code}\"")));
    for (path, expected) in [
        ("/errors", [true, true]),
        ("/errors?q=cook", [true, false]),
        ("/errors?state=resolved", [false, false]),
        ("/errors?kind=task&state=all", [false, false]),
        ("/errors?sort=recent", [true, true]),
    ] {
        assert_eq!(shown(&browser.get(path).await.text()), expected, "{path}");
    }
    let newest = browser.get("/errors?sort=recent").await.text();
    assert!(newest.find("/errors/31Lee\"") < newest.find("/errors/20Cook\""), "the newest is first");
    assert!(newest.contains("class=\"spark\"") && newest.contains("3 in the last 48 hours"));
    let overview = browser.get("/").await.text();
    for figure in
        ["4</span><span class=\"figure-name\">open errors", "4</span><span class=\"figure-name\">parked"]
    {
        assert!(overview.contains(figure), "{figure}");
    }
    let token = browser.token("/errors").await;
    for (deed, state, more) in [
        ("resolve", "resolved", ("reason", "parser 1.8")),
        ("reopen", "open", ("reason", "")),
        ("ignore", "ignored", ("hours", "2")),
        ("reopen", "open", ("reason", "")),
        ("fail", "unrecoverable", ("reason", "no source")),
    ] {
        let fields = [("form_token", token.as_str()), ("deed", deed), ("code", "20Cook"), more];
        let answer = browser.post("/errors/mark", &fields).await;
        assert_eq!((answer.status, answer.header("location")), (303, Some("/errors")), "{}", answer.text());
        assert_eq!(state_of(&client, "20Cook", "e1").await, state, "{deed}");
        assert_eq!(state_of(&client, "31Lee", "e9").await, "open", "{deed}");
        assert_eq!(shown(&browser.get("/errors").await.text()), [state == "open", true], "{deed}");
        let page = browser.get(&format!("/errors?state={state}")).await.text();
        assert!(shown(&page)[0], "{deed}");
    }
    let page = browser.get("/errors/20Cook").await.text();
    assert!(
        page.contains("no source") && page.contains("Occurrences per hour") && page.contains("/workflow/e1")
    );
    let wrong = [("form_token", token.as_str()), ("deed", "ignore"), ("code", "31Lee"), ("hours", "soon")];
    assert_eq!(browser.post("/errors/mark", &wrong).await.status, 400);
    let wrong = [("form_token", token.as_str()), ("deed", "forget"), ("code", "31Lee")];
    assert_eq!(browser.post("/errors/mark", &wrong).await.status, 400);
    assert_eq!(browser.get("/errors/20Nobody").await.status, 404);
    assert_eq!(browser.get("/errors/nothing").await.status, 404);
}

#[tokio::test]
async fn a_bulk_is_previewed_started_and_followed_live() {
    let lab = Lab::start().await;
    let client = lab.local();
    let events: Vec<_> = (0..40).map(|at| failed(&format!("cook-{at}"), "20Cook", "Cook")).collect();
    publish(&client, &events).await;
    publish(&client, &[failed("lee-0", "31Lee", "Lee")]).await;
    let mut browser = Browser::new(&client);
    let token = browser.token("/errors/20Cook").await;
    let fields = [("form_token", token.as_str()), ("code", "20Cook"), ("action", "resume")];
    let preview = browser.post("/parked/bulk", &fields).await;
    let page = preview.text();
    assert!(preview.status == 200 && page.contains("Resume 40 parked executions?"), "{page}");
    assert!(page.contains("cook-0") && !page.contains("lee-0"));
    assert!(is_parked(&client, "cook-0").await, "a preview changes nothing");
    assert_eq!(client.get("/v1/workflow/bulk").await.expect(200)["items"], json!([]));
    let start = |output: &'static str| {
        let mut fields = fields.to_vec();
        fields.extend([("deed", "start"), ("output", output), ("reason", "deployed")]);
        fields
    };
    let wrong = browser.post("/parked/bulk", &start("{")).await;
    let page = wrong.text();
    assert!(
        wrong.status == 400 && page.contains("is no JSON") && page.contains("value=\"deployed\""),
        "{page}"
    );
    let started = browser.post("/parked/bulk", &start("{\"fixed\": 1}")).await;
    let path = started.header("location").unwrap().to_owned();
    assert!(started.status == 303 && path.starts_with("/parked/bulks/"), "{}", started.text());
    assert!(browser.get(&path).await.text().contains("0/40"));
    let mut stream = Live::open(&client, &format!("/live{path}")).await;
    stream.read_until("HTTP/1.1 200").await;
    let _keeper = Keeper::start(&lab);
    stream.read_until("40/40").await;
    stream.read_until("data-state=\\\"completed\\\"").await;
    let one = client.get("/v1/workflow/executions/cook-7").await.expect(200);
    assert_eq!((&one["parked"], &one["outcome"]["output"]), (&json!(false), &json!({"fixed": 1})));
    assert!(is_parked(&client, "lee-0").await, "the others are not touched");
    // Those that are checked, and nothing when none is.
    let fields = [("form_token", token.as_str()), ("scope", "checked"), ("action", "fail")];
    assert_eq!(browser.post("/parked/bulk", &fields).await.header("location"), Some("/parked"));
    let mut fields = fields.to_vec();
    fields.extend([("execution", "lee-0"), ("deed", "start"), ("rate", "5")]);
    let started = browser.post("/parked/bulk", &fields).await;
    let path = started.header("location").unwrap().to_owned();
    let mut stream = Live::open(&client, &format!("/live{path}")).await;
    stream.read_until("1/1").await;
    assert!(browser.get("/parked").await.text().contains("Nothing is parked"));
    let found = client.get("/v1/workflow/executions/lee-0").await.expect(200);
    assert_eq!(found["outcome"]["error"], "ResolutionFailed");
    let ended = browser.post(&format!("{path}/cancel"), &[("form_token", &token)]).await;
    assert_eq!(ended.status, 409, "it had ended");
}

#[tokio::test]
async fn what_is_parked_goes_on_runs_again_or_fails() {
    let lab = Lab::start().await;
    let client = lab.local();
    publish(&client, &["e1", "e2"].map(|execution| failed(execution, "20Cook", "Cook"))).await;
    let mut browser = Browser::new(&client);
    let token = browser.token("/workflow/e1").await;
    let parked = browser.get("/parked").await.text();
    assert!(
        parked.contains("/workflow/e1\"") && parked.contains("/workflow/e2\"") && parked.contains("20Cook")
    );
    let fields = [("form_token", token.as_str()), ("output", "{"), ("reason", "done")];
    assert_eq!(browser.post("/workflow/e1/resume", &fields).await.status, 400);
    let fields = [("form_token", token.as_str()), ("output", "{\"rows\": 2}"), ("reason", "done")];
    let done = browser.post("/workflow/e1/resume", &fields).await;
    assert_eq!((done.status, done.header("location")), (303, Some("/workflow/e1")), "{}", done.text());
    assert_eq!(browser.post("/workflow/e1/resume", &fields).await.status, 409, "once");
    let fields = [("form_token", token.as_str()), ("error", "Gone"), ("cause", "no source")];
    assert_eq!(browser.post("/workflow/e2/fail", &fields).await.status, 303);
    let page = browser.get("/workflow/e2").await.text();
    assert!(page.contains("Gone: no source") && !page.contains("/workflow/e2/fail"), "{page}");
    assert!(browser.get("/workflow/e1").await.text().contains("&quot;rows&quot;: 2"));
    let fields = [("form_token", token.as_str()), ("deed", "resolve")];
    assert_eq!(browser.post("/workflow/e1/mark", &fields).await.status, 303);
    assert_eq!(state_of(&client, "20Cook", "e1").await, "resolved");
    assert_eq!(state_of(&client, "20Cook", "e2").await, "open");

    // A task of ours: run again, and then with an output that is taken for its own.
    let (job, request) = parked_task(&client, &client, "no such county").await;
    let (of_job, of_task) = (format!("/jobs/{job}"), format!("/tasks/{request}"));
    for path in [&of_job, &of_task] {
        let page = browser.get(path).await.text();
        assert!(page.contains("data-state=\"parked\">parked"), "{path}: {page}");
        assert!(page.contains(&format!("action=\"/workflow/{request}/resume\"")), "{path}");
        assert!(page.contains(&format!("action=\"/workflow/{request}/fail\"")), "{path}");
    }
    let again = [("form_token", token.as_str()), ("mode", "rerun"), ("from", "task")];
    let done = browser.post(&format!("/workflow/{request}/resume"), &again).await;
    assert_eq!((done.status, done.header("location")), (303, Some(of_task.as_str())), "{}", done.text());
    let task = client.claim(1).await.remove(0);
    assert_eq!(task["requestId"], request.as_str());
    client.fail(&task).await;
    let form = [("form_token", token.as_str()), ("output", "{\"rows\": 3}")];
    assert_eq!(browser.post(&format!("/workflow/{request}/resume"), &form).await.status, 303);
    assert_eq!(client.get(&format!("/v1/tasks/{request}")).await.expect(200)["output"], json!({"rows": 3}));
    let next = client.claim(1).await.remove(0);
    assert_eq!(next["requestId"], format!("{job}_b"), "what depends on it runs");
}

#[tokio::test]
async fn triage_forms_need_their_token_and_their_role_and_know_no_other_tenant() {
    let lab = Lab::start().await;
    let admin = lab.key("acme", Role::Admin).await;
    publish(&admin, &[failed("e1", "20Cook", "Cook")]).await;
    let wish = json!({"action": "fail", "filter": {"code": "20Cook"}, "ratePerSecond": 1});
    let bulk = admin.post("/v1/workflow/bulk", &wish).await.expect(202)["id"].as_str().unwrap().to_owned();
    let pages = ["/errors/20Cook".to_owned(), "/workflow/e1".to_owned(), format!("/parked/bulks/{bulk}")];
    let (mark, unpark) = ("/errors/mark", "/workflow/e1/resume");
    let forms = [
        (mark, true),
        ("/workflow/e1/mark", true),
        (unpark, false),
        ("/workflow/e1/fail", false),
        ("/parked/bulk", false),
        (&format!("/parked/bulks/{bulk}/cancel"), false),
    ];
    let fields = [("deed", "resolve"), ("code", "20Cook"), ("action", "resume")];
    for (role, may_mark) in [(Role::Reader, false), (Role::Producer, true)] {
        let mut browser = Browser::logged_in(&lab.key("acme", role).await).await;
        let token = browser.token("/jobs").await;
        for path in &pages {
            let page = browser.get(path).await;
            assert_eq!(page.status, 200, "{path}");
            let page = page.text();
            assert_eq!(page.contains("value=\"resolve\""), may_mark && !path.contains("bulks"), "{path}");
            assert!(!page.contains("/parked/bulk\"") && !page.contains("e1/resume"), "{path}");
        }
        for (path, is_mark) in forms {
            let mut fields = fields.to_vec();
            fields.push(("form_token", &token));
            let status = browser.post(path, &fields).await.status;
            assert_eq!(status == 403, !(is_mark && may_mark), "{path} as {role:?}: {status}");
        }
    }
    let mut browser = Browser::logged_in(&admin).await;
    for (path, _) in forms {
        assert_eq!(browser.post(path, &fields).await.status, 403, "{path} without a token");
    }
    let mut stranger = Browser::logged_in(&lab.key("other", Role::Admin).await).await;
    let token = stranger.token("/settings").await;
    for path in &pages {
        assert_eq!(browser.get(path).await.status, 200, "{path}");
        assert_eq!(stranger.get(path).await.status, 404, "{path}");
        assert_eq!(stranger.get(&format!("/live{path}")).await.status, 404, "{path}");
    }
    for path in ["/errors?state=all", "/parked", "/"] {
        let page = stranger.get(path).await.text();
        assert!(!page.contains("20Cook") && !page.contains("e1\""), "{path}");
    }
    for (path, _) in forms.iter().filter(|(path, _)| *path != "/parked/bulk") {
        let mut fields = fields.to_vec();
        fields.push(("form_token", &token));
        assert_eq!(stranger.post(path, &fields).await.status, 404, "{path}");
    }
    let mut fields = fields.to_vec();
    fields.push(("form_token", &token));
    assert!(stranger.post("/parked/bulk", &fields).await.text().contains("There is nothing to do"));
    assert!(is_parked(&admin, "e1").await, "nothing happened to it");
}

#[tokio::test]
async fn texts_stay_texts_and_tokens_are_nowhere_in_triage() {
    let lab = Lab::start().await;
    let client = lab.local();
    let (code, execution) = (format!("20{BAD}"), format!("e {BAD}"));
    let mut event = failed(&execution, &code, BAD);
    for name in ["dataGroupLabel", "phase", "step"] {
        event["detail"][name] = json!(BAD);
    }
    event["detail"]["errors"][0]["details"] = json!({BAD: BAD});
    publish(&client, &[event]).await;
    let (job, request) = parked_task(&client, &client, BAD).await;
    let mut browser = Browser::new(&client);
    let token = browser.token("/errors").await;
    let own = [("form_token", token.as_str()), ("reason", BAD)];
    let with = |more: &[(&'static str, &'static str)], code: &'static str| {
        let mut fields = own.to_vec();
        fields.extend(more);
        fields.push(("code", code));
        fields
    };
    let code: &'static str = code.leak();
    let marked = browser.post("/errors/mark", &with(&[("deed", "ignore")], code)).await;
    assert_eq!(marked.status, 303, "{}", marked.text());
    let preview = browser
        .post("/parked/bulk", &with(&[("action", "fail"), ("cause", BAD), ("county", BAD)], code))
        .await;
    let wrong = browser
        .post(
            "/parked/bulk",
            &with(&[("action", "resume"), ("output", BAD), ("deed", "start"), ("rate", "x")], code),
        )
        .await;
    assert_eq!((preview.status, wrong.status), (200, 400));
    let started = [
        ("action", "fail"),
        ("error", BAD),
        ("cause", BAD),
        ("deed", "start"),
        ("step", BAD),
        ("phase", BAD),
    ];
    let started = browser.post("/parked/bulk", &with(&started, code)).await;
    let bulk = started.header("location").unwrap_or_else(|| panic!("{}", started.text())).to_owned();
    let paths = [
        "/errors?state=all".to_owned(),
        format!("/errors?state=all&q={}", encoded(BAD)),
        format!("/errors/{}", encoded(code)),
        format!("/workflow/{}", encoded(&execution)),
        format!("/workflow/{}", encoded(BAD)),
        format!("/workflow/{request}"),
        format!("/jobs/{job}"),
        format!("/tasks/{request}"),
        format!("/parked?county={0}&phase={0}&step={0}", encoded(BAD)),
        format!("/parked?code={}", encoded(code)),
        "/parked".to_owned(),
        "/".to_owned(),
        "/events?type=WorkflowEvent".to_owned(),
        bulk,
    ];
    let mut pages = vec![("preview".to_owned(), preview.text()), ("wrong".to_owned(), wrong.text())];
    let _keeper = Keeper::start(&lab);
    Live::open(&client, &format!("/live{}", paths[13])).await.read_until("1/1").await;
    for path in paths {
        let page = browser.get(&path).await.text();
        pages.push((path, page));
    }
    let mut seen = 0;
    for (path, page) in &pages {
        for tag in ["<script>alert", "<img src=x", "onerror=alert(1)>\"'"] {
            assert!(!page.contains(tag), "{path}");
        }
        assert!(!page.contains(TOKEN), "{path}");
        seen += usize::from(page.contains("&lt;script&gt;alert"));
    }
    assert!(seen >= 13, "the text is shown, but as a text: {seen} of {}", pages.len());
}
