//! Whether everybody can use a page: axe-core judges it in the browser.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::browser_chromium::Chromium;
use crate::parts::skip;

/// What is serious or critical, each with the first places where it is.
const JUDGE: &str = "axe.run(document, { resultTypes: ['violations'] }).then(({ violations }) => violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .map(({ id, impact, nodes }) => `${id} (${impact}, ${nodes.length}): ` +
        nodes.slice(0, 3).map(({ html, any }) => html.slice(0, 240) + ' ' + (any[0]?.message ?? '')).join(' | ')))";

/// A judge of pages, with what it found so far.
pub(crate) struct Axe {
    findings: Vec<String>,
}

/// The script that judges, if it is there: the one that is named, or the one that `scripts/axe` installed.
fn program() -> Option<PathBuf> {
    if let Some((_, named)) = std::env::vars_os().find(|(name, _)| name == "TIDEMILL_TEST_AXE") {
        return Some(named.into());
    }
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent()?;
    Some(target.join("axe-core/node_modules/axe-core/axe.min.js")).filter(|file| file.is_file())
}

impl Axe {
    /// From now on it is in every page that the browser opens. `None` where it is not installed.
    pub(crate) fn start(browser: &mut Chromium) -> Option<Self> {
        let Some(program) = program() else {
            skip("there is no axe-core (scripts/axe installs it)");
            return None;
        };
        let source = std::fs::read_to_string(&program).unwrap();
        browser.call("Page.addScriptToEvaluateOnNewDocument", &json!({"source": source}));
        Some(Self { findings: Vec::new() })
    }

    /// Judges the page that is open.
    pub(crate) fn judge(&mut self, browser: &mut Chromium, page: &str) {
        let found = browser.eval(JUDGE);
        let found = found.as_array().unwrap().iter().map(|finding| format!("{page}: {finding}"));
        self.findings.extend(found);
    }

    /// Judges the page with all that is folded away.
    pub(crate) fn judge_opened(&mut self, browser: &mut Chromium, page: &str) {
        browser.eval("for (const fold of document.querySelectorAll('details')) fold.open = true");
        self.judge(browser, page);
    }

    /// All pages were judged.
    pub(crate) fn end(self) {
        assert!(self.findings.is_empty(), "{}", self.findings.join("\n"));
    }
}
