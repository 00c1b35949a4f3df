//! What tasks can learn from the processes that run them.

use std::io::ErrorKind;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;

use rustix::process::geteuid;
use serde_json::{Value, json};

use crate::sandbox::Sandbox;

/// A user without rights: nothing is closed to root.
const NOBODY: u32 = 65_534;

/// Tries to read the environments of the spawner, of the process above it and of the task itself.
const JOB: &str = r#"
name: look
tasks:
- taskId: a
  run: |
    read -r _ _ _ above _ < /proc/$PPID/stat
    for pid in $PPID $above $$; do
        if cat /proc/$pid/environ > /dev/null 2>&1; then open="$open,true"; else open="$open,false"; fi
    done
    echo "{\"open\":[${open#,}]}"
"#;

#[test]
fn se_08_a_task_cannot_read_the_environment_of_what_runs_it() {
    let sandbox = Sandbox::new();
    sandbox.write("job.yaml", JOB);
    let mut command = sandbox.command(&["run", "job.yaml", "--json"]);
    if geteuid().is_root() {
        chown(&sandbox.dir, Some(NOBODY), Some(NOBODY)).unwrap();
        command.uid(NOBODY).gid(NOBODY);
    }
    let ran = match command.output() {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            return eprintln!("skipped: user {NOBODY} may not start the binary: {error}");
        }
        ran => ran.unwrap(),
    };
    let report: Value =
        serde_json::from_slice(&ran.stdout).unwrap_or_else(|error| panic!("{error}: {ran:?}"));
    assert_eq!(report["tasks"]["a"]["output"], json!({ "open": [false, false, true] }), "{report}");
}
