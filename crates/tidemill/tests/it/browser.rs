//! The dashboard in a real browser: what people do with it, and how it looks.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::json;

use crate::browser_axe::Axe;
use crate::browser_chromium::Chromium;
use crate::browser_pages::{more_to_look_at, see_who_works, submit_by_hand};
use crate::outbound::{Listener, host_of, status};
use crate::parts::skip;
use crate::sandbox::{Sandbox, eventually};

/// A job whose second step waits for a file.
const GREEN: &str = "\
name: turns green
tasks:
- {taskId: fetch, run: 'echo fetched 12 rows'}
- {taskId: parse, run: 'echo parsing; while [ ! -e go ]; do sleep 0.05; done; echo parsed', dependsOn: [fetch]}
- {taskId: count, run: 'echo counted', dependsOn: [fetch]}
- {taskId: store, run: 'echo stored', dependsOn: [parse, count]}
";
/// A job whose step fails until a file is there.
const BROKEN: &str = "\
name: NAME
tasks:
- {taskId: load, run: 'echo loading; if [ ! -e FILE ]; then echo no connection >&2; exit 1; fi', retry: {maxAttempts: 1}}
- {taskId: mail, run: 'echo sent', dependsOn: [load]}
";
const USAGE: &str = "\
name: an agent's work
budget: {usd: 1}
tasks:
- taskId: summarise
  run: >-
    echo '@@tidemill {\"kind\":\"result\",\"output\":{\"words\":120},\"usage\":{\"inputTokens\":5200,\"outputTokens\":800,\"costUsd\":0.42}}'
";
/// A job whose first step waits for somebody once it has failed.
const PARKED: &str = "\
name: county load
tasks:
- {taskId: load, run: 'echo no such county >&2; exit 3', retry: {maxAttempts: 1}, onFailure: park, labels: {county: Cook}}
- {taskId: count, run: 'cat \"$INPUT_FILE\"', dependsOn: [load]}
";
const THREE_PARKED: &str = "\
name: three wait
tasks:
- {taskId: p1, run: 'exit 3', retry: {maxAttempts: 1}, onFailure: park}
- {taskId: p2, run: 'exit 3', retry: {maxAttempts: 1}, onFailure: park}
- {taskId: p3, run: 'exit 3', retry: {maxAttempts: 1}, onFailure: park}
";
const WIDTHS: [u32; 2] = [1280, 400];
const THEMES: [&str; 2] = ["light", "dark"];

pub(crate) struct Stage {
    pub(crate) sandbox: Sandbox,
    token: String,
    pub(crate) url: String,
}

impl Stage {
    pub(crate) fn run(&self, arguments: &[&str]) -> String {
        let environment = [("TIDEMILL_SERVER", self.url.as_str()), ("TIDEMILL_API_KEY", &self.token)];
        self.sandbox.run_with(arguments, &environment).ok().out.trim().to_owned()
    }

    pub(crate) fn submit(&self, name: &str, text: &str) -> String {
        self.sandbox.write(name, text);
        self.run(&["submit", name])
    }

    pub(crate) fn status(&self, job: &str) -> String {
        let job: serde_json::Value =
            serde_json::from_str(&self.run(&["jobs", "get", job, "--json"])).unwrap();
        job["status"].as_str().unwrap().to_owned()
    }
}

/// Where pictures go: beside what cargo builds.
fn pictures() -> std::path::PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("screenshots");
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

#[test]
fn people_work_with_the_dashboard_in_a_browser() {
    let sandbox = Sandbox::new();
    let Some(mut browser) = Chromium::start(sandbox.dir.join("profile")) else {
        skip("there is no chromium (on Debian: apt-get install chromium)");
        return;
    };
    let token =
        sandbox.run(&["keys", "create", "--role", "admin", "--label", "first"]).ok().out.trim().to_owned();
    let healed = Arc::new(AtomicBool::new(false));
    let is_healed = Arc::clone(&healed);
    let listener =
        Listener::start(move |_, _| status(if is_healed.load(Ordering::SeqCst) { 204 } else { 503 }, ""));
    let settings = [
        ("SCRIPT_MAX_RETRIES", "0"),
        ("HEALTH_OVERTIME_MS", "1"),
        ("HEALTH_PARKED_MS", "1"),
        ("CALLBACK_ALLOWED_HOSTS", host_of(&listener)),
    ];
    let server = sandbox.serve(&[], &settings);
    let url = server.url.clone();
    let stage = Stage { sandbox, token, url };
    let at = |path: &str| format!("{}{path}", stage.url);

    // In.
    browser.open(&at("/jobs"));
    assert!(browser.eval("location.pathname").as_str() == Some("/login"));
    browser.fill("#key", "tm_wrong");
    browser.complaints.clear();
    browser.follow("form button");
    assert!(
        browser.eval("document.querySelector('.problem').textContent").as_str().unwrap().contains("unknown")
    );
    // The browser itself notes that the answer was 401.
    browser.complaints.clear();
    browser.fill("#key", &stage.token);
    browser.follow("form button");
    assert_eq!(browser.eval("location.pathname"), "/jobs");
    assert_eq!(browser.eval("document.cookie"), "", "scripts see no cookie");

    let mut axe = Axe::start(&mut browser);
    pages_without_anything(&stage, &mut browser, axe.as_mut());
    submit_by_hand(&stage, &mut browser, axe.as_mut());
    watch_a_job_turn_green(&stage, &mut browser);
    retry_a_failed_task(&stage, &mut browser);
    let letter = replay_a_dead_letter(&stage, &mut browser);
    let told = look_through_callbacks(&stage, &mut browser, &listener, &healed);
    write_and_test_a_script(&stage, &mut browser);
    let bulk = resolve_an_error_and_resume_what_waits(&stage, &mut browser);
    checks_and_sheets_stay_with_their_items(&stage, &mut browser);
    let mut pages = everything_to_look_at(&stage, letter);
    pages.extend(parked_to_look_at(&stage, bulk));
    pages.extend(more_to_look_at(&stage, &mut browser));
    see_who_works(&stage, &mut browser);
    pages.push(("dead-letters-events", "/dead-letters?kind=event&state=replayed".to_owned()));
    pages.push(("dead-letter-event", told));
    check_health(&stage, &mut browser);
    take_pictures(&stage, &mut browser, &pages, axe.as_mut());
    other_pages(&stage, &mut browser, axe.as_mut());

    // Out.
    browser.look(1280, "light");
    browser.open(&at("/"));
    browser.follow("form[action='/logout'] button");
    assert_eq!(browser.eval("location.pathname"), "/login");
    browser.open(&at("/jobs"));
    assert_eq!(browser.eval("location.pathname"), "/login");
    if let Some(mut axe) = axe {
        for theme in THEMES {
            browser.look(1280, theme);
            axe.judge(&mut browser, &format!("login {theme}"));
        }
        axe.end();
    }

    assert_eq!(browser.complaints, [""; 0], "nothing is wrong in the console");

    // The next life of the server knows no sessions, and an open page says so.
    browser.fill("#key", &stage.token);
    browser.follow("form button");
    browser.wait("document.querySelector('#live-light').dataset.on === 'yes'");
    assert_eq!(server.stop().code, 0);
    let address = stage.url.strip_prefix("http://").unwrap();
    let mut server = stage.sandbox.start(&["serve", "--listen", address], &settings);
    server.wait_for("listening on ");
    browser.wait("!document.querySelector('#notice').hidden");
    let told = browser.eval("document.querySelector('#notice').textContent");
    assert_eq!(told, "You are logged out. Log in again");
    browser.follow("#notice a");
    assert_eq!(browser.eval("location.pathname + location.search"), "/login?next=%2Fjobs");
    let own = |asked: &&String| {
        !asked.starts_with(&stage.url) && !asked.starts_with("data:") && *asked != "about:blank"
    };
    let elsewhere: Vec<_> = browser.asked.iter().filter(own).collect();
    assert_eq!(elsewhere, [""; 0], "no request leaves the host");
    drop(browser);
    drop(server);
}

fn watch_a_job_turn_green(stage: &Stage, browser: &mut Chromium) {
    let job = stage.submit("green.yaml", GREEN);
    browser.open(&format!("{}/jobs/{job}", stage.url));
    browser.wait("document.querySelector('#live-light').dataset.on === 'yes'");
    browser
        .wait("[...document.querySelectorAll('.node')].some((node) => node.dataset.state === 'processing')");
    browser.eval("window.isTheSame = true");
    // The list is open in what would be another window; here it is looked at afterwards.
    stage.sandbox.write("go", "");
    browser
        .wait("[...document.querySelectorAll('.node')].every((node) => node.dataset.state === 'completed')");
    browser.wait("document.querySelector('#job .state').dataset.state === 'completed'");
    browser.wait("document.querySelectorAll('#tasks .state[data-state=completed]').length === 4");
    browser.wait("document.querySelectorAll('#timeline rect[data-state=completed]').length === 4");
    assert_eq!(browser.eval("window.isTheSame"), true, "the page was not loaded again");
    assert_eq!(stage.status(&job), "completed");
    browser.open(&format!("{}/tasks/{job}_parse", stage.url));
    browser.wait("document.querySelector('#log-text').textContent === 'parsing\\nparsed\\n'");
}

fn retry_a_failed_task(stage: &Stage, browser: &mut Chromium) {
    let job = stage.submit("retry.yaml", &BROKEN.replace("NAME", "to be retried").replace("FILE", "fixed"));
    eventually("the failure of the task", || stage.status(&job) == "failed");
    browser.open(&format!("{}/jobs?status=failed", stage.url));
    browser.follow(&format!("#row-{job} td.name a"));
    browser.follow("#tasks td.name a");
    assert_eq!(browser.eval("document.querySelector('#task .state').dataset.state"), "failed");
    assert!(browser.eval("document.body.innerText").as_str().unwrap().contains("no connection"));
    stage.sandbox.write("fixed", "");
    browser.follow("form[action$='/retry'] button");
    browser.wait("document.querySelector('#task .state').dataset.state === 'completed'");
    eventually("the end of the job", || stage.status(&job) == "completed");
}

fn replay_a_dead_letter(stage: &Stage, browser: &mut Chromium) -> String {
    let job =
        stage.submit("replay.yaml", &BROKEN.replace("NAME", "to be replayed").replace("FILE", "mended"));
    eventually("the failure of the task", || stage.status(&job) == "failed");
    browser.open(&format!("{}/dead-letters", stage.url));
    browser.follow(&format!("tr:has(a[href='/tasks/{job}_load']) td a[href^='/dead-letters/']"));
    let letter = browser.eval("location.pathname").as_str().unwrap().to_owned();
    stage.sandbox.write("mended", "");
    browser.follow("form[action$='/replay'] button");
    assert_eq!(browser.eval("document.querySelector('#letter .state').dataset.state"), "replayed");
    assert!(
        browser.eval("document.querySelector('.note').textContent").as_str().unwrap().contains("runs again")
    );
    eventually("the end of the job", || stage.status(&job) == "completed");
    letter
}

/// Callbacks that never arrived: one is sent again, one is put aside, the rest is sent again at once.
fn look_through_callbacks(
    stage: &Stage,
    browser: &mut Chromium,
    listener: &Listener,
    healed: &AtomicBool,
) -> String {
    for (at, name) in ["<script>alert(1)</script>", "second", "third", "fourth"].into_iter().enumerate() {
        let job = json!({
            "name": name, "callbackUrl": format!("{}/done-{at}", listener.url),
            "tasks": [{ "taskId": "only", "run": "true" }],
        });
        stage.submit("callback.json", &job.to_string());
    }
    let list = ["dead-letters", "list", "--kind", "event", "--json"];
    let count = || {
        let listed: serde_json::Value = serde_json::from_str(&stage.run(&list)).unwrap();
        listed["items"].as_array().unwrap().iter().filter(|letter| letter["state"] == "open").count()
    };
    eventually("that they are given up", || count() == 4);
    browser.open(&format!("{}/dead-letters", stage.url));
    browser.follow("a.chip[href*='kind=event']");
    assert_eq!(browser.eval("document.querySelectorAll('#list tbody tr').length"), 4);
    let first = format!("{}/done-0", listener.url);
    let row = format!(
        "[...document.querySelectorAll('#list tr')].find((row) => row.innerText.includes('{first}'))"
    );
    let link =
        browser.eval(&format!("{row}.querySelector(\"a[href^='/dead-letters/']\").getAttribute('href')"));
    let letter = link.as_str().unwrap().to_owned();
    browser.follow(&format!("#list a[href='{letter}']"));
    let shown = browser.eval("document.body.innerText");
    for text in ["What was to be told", "<script>alert(1)</script>", "Job Completed", "answered 503", &first]
    {
        assert!(shown.as_str().unwrap().contains(text), "{text} is not in {shown}");
    }
    healed.store(true, Ordering::SeqCst);
    let tries = listener.of("/done-0").len();
    browser.follow("form[action$='/replay'] button");
    assert_eq!(browser.eval("document.querySelector('#letter .state').dataset.state"), "replayed");
    let note = browser.eval("document.querySelector('.note').textContent");
    assert!(note.as_str().unwrap().starts_with("Replayed as delivery "), "{note}");
    eventually("that it arrived", || listener.of("/done-0").len() == tries + 1);
    browser.open(&format!("{}/dead-letters?kind=event", stage.url));
    browser.follow("#list tbody a[href^='/dead-letters/']");
    browser.eval("document.querySelector('details.confirm').open = true");
    browser.follow("form[action$='/discard'] button");
    assert_eq!(browser.eval("document.querySelector('#letter .state').dataset.state"), "discarded");
    browser.open(&format!("{}/dead-letters?kind=event", stage.url));
    browser.follow("button[value='replay-all']");
    assert_eq!(browser.eval("document.querySelector('.note').textContent"), "2 were replayed.");
    assert_eq!(count(), 0);
    letter
}

fn write_and_test_a_script(stage: &Stage, browser: &mut Chromium) {
    browser.open(&format!("{}/scripts", stage.url));
    browser.follow("a[href='/scripts/new']");
    browser.fill("input[name=name]", "greet");
    browser.fill("input[name=id]", "greet");
    browser.fill("#source", "const name = ctx.event.data.name\nreturn name +;\n");
    browser.complaints.clear();
    browser.follow("button[value=save]");
    let told = browser.eval("document.querySelector('.problem').textContent");
    assert!(told.as_str().unwrap().contains("line 2"), "{told}");
    // The browser itself notes that the answer was 400.
    browser.complaints.clear();
    let source = "console.log('greeting', ctx.event.data.name);\nctx.publish('greeted', { name: ctx.event.data.name });\nreturn { hello: ctx.event.data.name };\n";
    browser.fill("#source", source);
    browser.eval("document.querySelector('input[value=publish]').click()");
    browser.fill("#properties", "{\"name\": \"<b>Ada</b>\"}");
    browser.follow("button[value=test]");
    let told = browser.eval("document.querySelector('#test-result').innerText");
    let told = told.as_str().unwrap();
    assert!(told.contains("ran to its end") && told.contains("\"hello\": \"<b>Ada</b>\""), "{told}");
    assert!(told.contains("greeting <b>Ada</b>") && told.contains("\"call\": \"publish\""), "{told}");
    assert_eq!(browser.eval("document.querySelector('#source').value"), source, "what was typed stays");
    browser.follow("button[value=save]");
    assert_eq!(browser.eval("location.pathname"), "/scripts/greet");
    browser.fill("#subscriptions input[name=eventType]", "user.created");
    browser.follow("#subscriptions .bulk button");
    browser.open(&format!("{}/scripts", stage.url));
    browser.wait("document.querySelector('#live-light').dataset.on === 'yes'");
    let event = json!({"eventType": "user.created", "properties": {"name": "<script>alert(1)</script>"}});
    stage.sandbox.write("event.json", &event.to_string());
    stage.run(&["events", "publish", "--file", "event.json"]);
    browser.wait("document.querySelector('#executions .state[data-state=success]')");
    browser.follow("#executions a[href^='/executions/']");
    assert!(browser.eval("document.body.innerText").as_str().unwrap().contains("<script>alert(1)</script>"));
    browser.open(&format!("{}/scripts/greet", stage.url));
    browser.follow("#subscriptions form[action$='/disable'] button");
    assert_eq!(browser.eval("document.querySelector('#subscriptions .state').dataset.state"), "disabled");
}

/// Workflow events that say that executions failed and wait.
fn failures(stage: &Stage, code: &str, county: &str, count: usize) {
    let events: Vec<_> = (0..count)
        .map(|at| {
            json!({
                "source": "elephant.workflow", "detail-type": "WorkflowEvent",
                "detail": {
                    "executionId": format!("arn:aws:states:eu-west-1:123456789012:execution:prepare:{county}-{at}"),
                    "county": county, "dataGroupLabel": "Seed", "status": "FAILED", "phase": "Transform",
                    "step": "Transform", "taskToken": format!("token-of-{county}-{at}"),
                    "errors": [{"code": code, "details": {"line": at, "text": "<b>unexpected</b> column"}}],
                },
            })
        })
        .collect();
    stage.sandbox.write("failures.json", &json!(events).to_string());
    stage.run(&["events", "publish", "--file", "failures.json"]);
}

fn resolve_an_error_and_resume_what_waits(stage: &Stage, browser: &mut Chromium) -> String {
    browser.open(&format!("{}/errors", stage.url));
    browser.wait("document.querySelector('#live-light').dataset.on === 'yes'");
    browser.eval("window.isTheSame = true");
    failures(stage, "20Cook", "Cook", 30);
    browser.wait(
        "document.querySelector(\"#list a[href='/errors/20Cook']\")?.closest('tr').innerText.includes('30')",
    );
    assert_eq!(browser.eval("window.isTheSame"), true, "the page was not loaded again");
    browser.follow("#list a[href='/errors/20Cook']");
    assert!(browser.eval("document.body.innerText").as_str().unwrap().contains("<b>unexpected</b> column"));
    assert_eq!(browser.eval("document.querySelector('#error .state').dataset.state"), "open");
    browser.eval("document.querySelector('#error details.confirm').open = true");
    browser.fill("#error details.confirm input[name=reason]", "parser 1.8 deployed");
    browser.follow("#error button[value=resolve]");
    assert_eq!(browser.eval("document.querySelector('#error .state').dataset.state"), "resolved");
    assert!(browser.eval("document.body.innerText").as_str().unwrap().contains("parser 1.8 deployed"));

    browser.follow("#waiting button[value=resume]");
    let asked = browser.eval("document.querySelector('h1').textContent");
    assert_eq!(asked, "Resume 30 parked executions?");
    for width in WIDTHS {
        for theme in THEMES {
            browser.look(width, theme);
            let picture = browser.picture(width);
            std::fs::write(pictures().join(format!("bulk-preview-{theme}-{width}.png")), picture).unwrap();
        }
    }
    browser.fill("textarea[name=output]", "{\"fixed\": true}");
    browser.fill("input[name=rate]", "15");
    browser.follow("button[value=start]");
    browser.wait("document.querySelector('#live-light').dataset.on === 'yes'");
    browser.eval("window.isTheSame = true");
    let done = "Number(document.querySelector('.figure-value').textContent.split('/')[0])";
    browser.wait(&format!("{done} > 0 && {done} < 30"));
    browser.wait("document.querySelector('.figure-value').textContent === '30/30'");
    browser.wait("document.querySelector('#bulk .state').dataset.state === 'completed'");
    assert_eq!(browser.eval("window.isTheSame"), true, "the page was not loaded again");
    let left = stage.run(&["parked", "list", "--json"]);
    assert!(!left.contains("Cook-"), "{left}");
    browser.eval("location.pathname").as_str().unwrap().to_owned()
}

/// What is checked or opened belongs to its item, whatever comes or goes around it.
fn checks_and_sheets_stay_with_their_items(stage: &Stage, browser: &mut Chromium) {
    failures(stage, "31Dade", "Dade", 3);
    let execution = |at: u32| format!("arn:aws:states:eu-west-1:123456789012:execution:prepare:Dade-{at}");
    browser.open(&format!("{}/parked?code=31Dade", stage.url));
    browser.wait("document.querySelector('#live-light').dataset.on === 'yes'");
    let boxes = "[...document.querySelectorAll('tbody input[type=checkbox]')]";
    assert_eq!(browser.eval(&format!("{boxes}.length")), 3);
    browser.eval(&format!("{boxes}.find((box) => box.value.endsWith('Dade-1')).checked = true"));
    stage.run(&["parked", "resume", &execution(0)]);
    browser.wait(&format!("{boxes}.length === 2"));
    let checked = format!("{boxes}.filter((box) => box.checked).map((box) => box.value).join()");
    assert_eq!(browser.eval(&checked), execution(1), "the check stays with its row");
    stage.run(&["parked", "resume", &execution(1)]);
    browser.wait(&format!("{boxes}.length === 1"));
    assert_eq!(browser.eval(&checked), "", "and goes with it");

    let job = stage.submit("three.yaml", THREE_PARKED);
    let task = |name: &str| format!("{job}_{name}");
    eventually("that all are parked", || {
        let parked = stage.run(&["parked", "list", "--json"]);
        ["p1", "p2", "p3"].iter().all(|name| parked.contains(&task(name)))
    });
    browser.open(&format!("{}/jobs/{job}", stage.url));
    browser.wait("document.querySelector('#live-light').dataset.on === 'yes'");
    let sheet = "document.querySelector('details.confirm[open]')";
    let form = |name: &str| format!("form[action*='{}'][action$='/fail']", task(name));
    browser.wait(&format!("document.querySelector(\"{}\")", form("p3")));
    browser.eval(&format!("document.querySelector(\"{}\").closest('details').open = true", form("p2")));
    stage.run(&["parked", "resume", &task("p1")]);
    browser.wait(&format!("!document.querySelector(\"{}\")", form("p1")));
    let action = browser.eval(&format!("{sheet}?.querySelector('form').getAttribute('action') ?? ''"));
    assert!(action.as_str().unwrap().contains(&task("p2")), "the open sheet is that of p2: {action}");
    stage.run(&["parked", "resume", &task("p2")]);
    browser.wait(&format!("!document.querySelector(\"{}\")", form("p2")));
    assert_eq!(browser.eval(&format!("{sheet} === null")), true, "it went with p2");
    stage.run(&["parked", "resume", &task("p3")]);

    // A letter that somebody else put aside leaves at once.
    let job = stage.submit("aside.yaml", &BROKEN.replace("NAME", "put aside").replace("FILE", "never"));
    eventually("the failure of the task", || stage.status(&job) == "failed");
    browser.open(&format!("{}/dead-letters", stage.url));
    browser.wait("document.querySelector('#live-light').dataset.on === 'yes'");
    let row = format!("document.querySelector(\"tr:has(a[href='/tasks/{job}_load'])\")");
    let letter = browser.eval(&format!("{row}.querySelector('input').value"));
    stage.run(&["dead-letters", "discard", letter.as_str().unwrap()]);
    browser.wait(&format!("!{row}"));
}

/// A task runs for too long and executions are parked for too long, as far as this server is told.
fn check_health(stage: &Stage, browser: &mut Chromium) {
    browser.open(&format!("{}/health", stage.url));
    assert!(browser.eval("document.body.innerText").as_str().unwrap().contains("No check was made yet"));
    browser.follow("form[action='/health/check'] button");
    let told = browser.eval("document.querySelector('.note').textContent");
    assert_eq!(told, "Checked: something needs a look.");
    assert_eq!(browser.eval("document.querySelectorAll('#tasks .state[data-state=overtime]').length"), 1);
    assert!(
        browser.eval("document.querySelector('#findings').innerText").as_str().unwrap().contains("parked")
    );
    browser.wait("document.querySelector('#live-light').dataset.on === 'yes'");
    browser.eval("window.before = document.querySelector('#verdict time').dataset.at");
    let environment = [("TIDEMILL_SERVER", stage.url.as_str()), ("TIDEMILL_API_KEY", &stage.token)];
    assert_eq!(stage.sandbox.run_with(&["health"], &environment).code, 1);
    browser.wait("document.querySelector('#verdict time').dataset.at !== window.before");
    browser.follow("#tasks td a");
    assert!(browser.eval("location.pathname").as_str().unwrap().starts_with("/tasks/"));
}

/// Tasks and executions that wait, and the pages that show them.
fn parked_to_look_at(stage: &Stage, bulk: String) -> Vec<(&'static str, String)> {
    failures(stage, "31Lee", "Lee", 4);
    failures(stage, "10050Broward", "Broward", 2);
    let job = stage.submit("parked.yaml", PARKED);
    let task = format!("{job}_load");
    eventually("that the task is parked", || stage.run(&["parked", "list", "--json"]).contains(&task));
    let lee = "arn%3Aaws%3Astates%3Aeu-west-1%3A123456789012%3Aexecution%3Aprepare%3ALee-0";
    vec![
        ("errors", "/errors".to_owned()),
        ("errors-all", "/errors?state=all".to_owned()),
        ("error", "/errors/31Lee".to_owned()),
        ("parked", "/parked".to_owned()),
        ("bulk", bulk),
        ("workflow", format!("/workflow/{lee}")),
        ("job-parked", format!("/jobs/{job}")),
        ("task-parked", format!("/tasks/{task}")),
    ]
}

/// More to look at, and the pages that show it.
fn everything_to_look_at(stage: &Stage, letter: String) -> Vec<(&'static str, String)> {
    let failing =
        stage.submit("failing.yaml", &BROKEN.replace("NAME", "nightly import").replace("FILE", "never"));
    eventually("the failure of the task", || stage.status(&failing) == "failed");
    let agent = stage.submit("usage.yaml", USAGE);
    eventually("the end of the agent's job", || stage.status(&agent) == "completed");
    stage.run(&["usage", "budget", "set", "--usd", "50", "--period", "day"]);
    let running = GREEN.replace("[ ! -e go ]", "[ ! -e never ]").replace("turns green", "weekly report");
    let running = stage.submit("running.yaml", &running);
    let part = |number: u32| format!("- {{taskId: part-{number}, run: 'true', dependsOn: [split]}}\n");
    let parts: String = (0..400).map(part).collect();
    let wide = format!("name: wide import\ntasks:\n- {{taskId: split, run: 'true'}}\n{parts}");
    let wide = stage.submit("wide.yaml", &wide);
    eventually("the end of the wide job", || stage.status(&wide) == "completed");
    vec![
        ("overview", "/".to_owned()),
        ("jobs", "/jobs".to_owned()),
        ("job", format!("/jobs/{running}")),
        ("job-failed", format!("/jobs/{failing}")),
        ("job-wide", format!("/jobs/{wide}")),
        ("job-budget", format!("/jobs/{agent}")),
        ("task", format!("/tasks/{running}_parse")),
        ("task-failed", format!("/tasks/{failing}_load")),
        ("events", "/events?type=Task%20Completed".to_owned()),
        ("dead-letters", "/dead-letters".to_owned()),
        ("dead-letter", letter),
        ("scripts", "/scripts".to_owned()),
        ("script", "/scripts/greet".to_owned()),
        ("health", "/health".to_owned()),
        ("usage", "/usage".to_owned()),
        ("settings", "/settings".to_owned()),
    ]
}

fn take_pictures(
    stage: &Stage,
    browser: &mut Chromium,
    pages: &[(&'static str, String)],
    mut axe: Option<&mut Axe>,
) {
    let folder = pictures();
    for (name, path) in pages {
        for width in WIDTHS {
            for theme in THEMES {
                browser.look(width, theme);
                browser.open(&format!("{}{path}", stage.url));
                assert!(browser.eval("document.querySelector('h1') !== null") == true, "{path}");
                let across = browser.eval("document.documentElement.scrollWidth");
                assert_eq!(across, width, "{path} is as wide as the window");
                // What scrolls by itself is no part of that. The list that people look at on the way must not.
                let hidden = "[...document.querySelectorAll('table.jobs')]
                    .map(table => table.parentElement.scrollWidth - table.parentElement.clientWidth)
                    .reduce((most, hidden) => Math.max(most, hidden), 0)";
                assert_eq!(
                    browser.eval(hidden),
                    0,
                    "pixels of the jobs at {width} in {path} that are out of sight"
                );
                let dark = browser.eval("getComputedStyle(document.body).colorScheme");
                assert_eq!(dark, theme, "{path}");
                std::fs::write(folder.join(format!("{name}-{theme}-{width}.png")), browser.picture(width))
                    .unwrap();
                if let Some(axe) = axe.as_deref_mut() {
                    axe.judge(browser, &format!("{name} {theme} {width}"));
                    if width == WIDTHS[0] {
                        axe.judge_opened(browser, &format!("{name} {theme} {width} opened"));
                    }
                }
            }
        }
    }
}

/// What pages say while there is nothing to show.
fn pages_without_anything(stage: &Stage, browser: &mut Chromium, axe: Option<&mut Axe>) {
    let Some(axe) = axe else { return };
    for path in [
        "/",
        "/jobs",
        "/tasks",
        "/definitions",
        "/events?type=none",
        "/errors",
        "/parked",
        "/dead-letters",
        "/scripts",
        "/scripts/new",
        "/health",
        "/usage",
    ] {
        for theme in THEMES {
            browser.look(WIDTHS[0], theme);
            browser.open(&format!("{}{path}", stage.url));
            axe.judge(browser, &format!("{path} {theme}, empty"));
        }
    }
}

/// Pages that are none of the dashboard's own.
fn other_pages(stage: &Stage, browser: &mut Chromium, mut axe: Option<&mut Axe>) {
    assert_eq!(browser.complaints, [""; 0], "nothing is wrong in the console");
    for (name, path) in [("problem", "/jobs/none"), ("docs", "/docs")] {
        for theme in THEMES {
            browser.look(1280, theme);
            browser.open(&format!("{}{path}", stage.url));
            std::fs::write(pictures().join(format!("{name}-{theme}-1280.png")), browser.picture(1280))
                .unwrap();
            if let Some(axe) = axe.as_deref_mut() {
                axe.judge(browser, &format!("{name} {theme}"));
            }
        }
    }
    // The browser itself notes that the answer was 404.
    browser.complaints.clear();
}
