//! Chromium without a window, driven over a pair of pipes by its own debugging protocol.

use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Instant;

use serde_json::{Value, json};

use crate::sandbox::PATIENCE;

/// The shell gives the pipes the numbers that Chromium expects them to have.
const START: &str = r#"exec "$0" "$@" 3<&0 4>&1 0</dev/null 1>/dev/null 2>/dev/null"#;

pub(crate) struct Chromium {
    child: Child,
    orders: ChildStdin,
    answers: Receiver<Value>,
    session: Option<String>,
    last: u64,
    /// Addresses that were asked for.
    pub(crate) asked: Vec<String>,
    /// Errors of pages, as the console has them.
    pub(crate) complaints: Vec<String>,
    loaded: u64,
    profile: PathBuf,
}

/// The program, if there is one.
fn program() -> Option<PathBuf> {
    if let Some((_, named)) = std::env::vars_os().find(|(name, _)| name == "TIDEMILL_TEST_CHROMIUM") {
        return Some(named.into());
    }
    let path = std::env::vars_os().find(|(name, _)| name == "PATH")?.1;
    let folders: Vec<_> = std::env::split_paths(&path).collect();
    let names = ["chromium", "chromium-browser", "google-chrome", "chrome"];
    names
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|file| file.is_file())
}

impl Chromium {
    /// A browser with an empty page; `None` where none is installed.
    pub(crate) fn start(profile: PathBuf) -> Option<Self> {
        let mut child = Command::new("sh")
            .args(["-c", START])
            .arg(program()?)
            .args([
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--hide-scrollbars",
            ])
            .args(["--no-first-run", "--disable-background-networking", "--disable-component-update"])
            .args(["--disable-sync", "--disable-default-apps", "--disable-extensions"])
            .args(["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--remote-debugging-pipe"])
            .arg(format!("--user-data-dir={}", profile.display()))
            .arg("about:blank")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = child.stdin.take().unwrap();
        let words = child.stdout.take().unwrap();
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            for message in BufReader::new(words).split(0).map_while(Result::ok) {
                let Ok(value) = serde_json::from_slice(&message) else { break };
                if sender.send(value).is_err() {
                    break;
                }
            }
        });
        let mut browser = Self {
            child,
            orders,
            answers,
            session: None,
            last: 0,
            asked: Vec::new(),
            complaints: Vec::new(),
            loaded: 0,
            profile,
        };
        let target = browser.call("Target.createTarget", &json!({"url": "about:blank"}))["targetId"].clone();
        let attached = browser.call("Target.attachToTarget", &json!({"targetId": target, "flatten": true}));
        browser.session = attached["sessionId"].as_str().map(ToOwned::to_owned);
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), &json!({}));
        }
        Some(browser)
    }

    /// Sends an order and waits for its answer. What happens meanwhile is noted.
    pub(crate) fn call(&mut self, method: &str, params: &Value) -> Value {
        self.last += 1;
        let id = self.last;
        let mut order = json!({"id": id, "method": method, "params": params});
        if let Some(session) = &self.session {
            order["sessionId"] = json!(session);
        }
        let mut bytes = serde_json::to_vec(&order).unwrap();
        bytes.push(0);
        self.orders.write_all(&bytes).unwrap();
        let end = Instant::now() + PATIENCE;
        loop {
            let mut message = self.next(end, method);
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method} {params}: {}", message["error"]);
                return message["result"].take();
            }
        }
    }

    fn next(&mut self, end: Instant, what: &str) -> Value {
        let left = end.saturating_duration_since(Instant::now());
        let message = self.answers.recv_timeout(left);
        let message =
            message.unwrap_or_else(|_| panic!("{what}: the browser says nothing; {:#?}", self.complaints));
        let params = &message["params"];
        match message["method"].as_str().unwrap_or_default() {
            "Page.loadEventFired" => self.loaded += 1,
            "Network.requestWillBeSent" => {
                self.asked.extend(params["request"]["url"].as_str().map(ToOwned::to_owned));
            }
            "Runtime.exceptionThrown" => self.complaints.push(params["exceptionDetails"].to_string()),
            "Runtime.consoleAPICalled"
                if matches!(params["type"].as_str(), Some("error" | "warning" | "assert")) =>
            {
                self.complaints.push(params["args"].to_string());
            }
            "Log.entryAdded" if params["entry"]["level"] == "error" => {
                self.complaints.push(params["entry"].to_string());
            }
            _ => {}
        }
        message
    }

    /// Waits for the next page to be there, beside those that were.
    fn wait_loaded(&mut self, before: u64, what: &str) {
        let end = Instant::now() + PATIENCE;
        while self.loaded <= before {
            self.next(end, what);
        }
    }

    pub(crate) fn open(&mut self, address: &str) {
        let before = self.loaded;
        let gone = self.call("Page.navigate", &json!({"url": address}));
        assert!(gone["errorText"].is_null(), "{address}: {gone}");
        self.wait_loaded(before, address);
    }

    /// The value of an expression; promises are waited for.
    pub(crate) fn eval(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "awaitPromise": true, "returnByValue": true});
        let mut told = self.call("Runtime.evaluate", &params);
        assert!(told["exceptionDetails"].is_null(), "{expression}: {told}");
        told["result"]["value"].take()
    }

    /// Waits until a condition holds on the page as it is, without loading it again.
    pub(crate) fn wait(&mut self, condition: &str) {
        let watch = format!(
            "new Promise((done, fail) => {{
                const look = () => {{ if ({condition}) {{ watcher.disconnect(); done(true); }} }};
                const watcher = new MutationObserver(look);
                watcher.observe(document, {{ subtree: true, childList: true, attributes: true, characterData: true }});
                setTimeout(() => fail(new Error('it did not happen: ' + document.body.innerText.slice(0, 2000))), 40000);
                look();
            }})"
        );
        self.eval(&watch);
    }

    /// Clicks on what a selector finds and waits for the page that it leads to.
    pub(crate) fn follow(&mut self, selector: &str) {
        let before = self.loaded;
        let quoted = json!(selector);
        let found = self.eval(&format!(
            "(() => {{ const e = document.querySelector({quoted}); e?.click(); return !!e; }})()"
        ));
        assert!(found == true, "there is no {selector}: {}", self.eval("document.body.innerText"));
        self.wait_loaded(before, selector);
    }

    /// Types into a field.
    pub(crate) fn fill(&mut self, selector: &str, text: &str) {
        self.eval(&format!(
            "document.querySelector({}).focus(), document.querySelector({0}).select()",
            json!(selector)
        ));
        self.call("Input.insertText", &json!({"text": text}));
        let held = self.eval(&format!("document.querySelector({}).value", json!(selector)));
        assert_eq!(held, text, "{selector}");
    }

    /// How the page is shown.
    pub(crate) fn look(&mut self, width: u32, theme: &str) {
        let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", &size);
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": theme}]});
        self.call("Emulation.setEmulatedMedia", &features);
    }

    /// The page as a picture, all of it up to a height.
    pub(crate) fn picture(&mut self, width: u32) -> Vec<u8> {
        let height = self.eval("Math.min(document.documentElement.scrollHeight, 2600)");
        let clip = json!({"x": 0, "y": 0, "width": width, "height": height, "scale": 1});
        let params = json!({"format": "png", "captureBeyondViewport": true, "clip": clip});
        let shot = self.call("Page.captureScreenshot", &params);
        decoded(shot["data"].as_str().unwrap())
    }
}

/// Base64, which is all that pictures come in.
fn decoded(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => u32::from(byte - b'A'),
        b'a'..=b'z' => u32::from(byte - b'a') + 26,
        b'0'..=b'9' => u32::from(byte - b'0') + 52,
        b'+' => 62,
        _ => 63,
    };
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for four in text.trim_end_matches('=').as_bytes().chunks(4) {
        let bits = four.iter().fold(0, |bits, byte| bits << 6 | digit(*byte)) << (6 * (4 - four.len()));
        bytes.extend_from_slice(&bits.to_be_bytes()[1..four.len()]);
    }
    bytes
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.profile);
    }
}
