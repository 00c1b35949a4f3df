//! How workers are kept running on machines.

use std::path::{Path, PathBuf};
use std::process::Command;

const UNITS: [(&str, &str); 6] = [
    ("tidemill-worker@.service", include_str!("../../../../deploy/systemd/tidemill-worker@.service")),
    ("tidemill.service", include_str!("../../../../deploy/systemd/tidemill.service")),
    ("tidemill-server.service", include_str!("../../../../deploy/systemd/tidemill-server.service")),
    ("tidemill-workers.target", include_str!("../../../../deploy/systemd/tidemill-workers.target")),
    (
        "tidemill-workers-restart.service",
        include_str!("../../../../deploy/systemd/tidemill-workers-restart.service"),
    ),
    (
        "tidemill-workers-restart.timer",
        include_str!("../../../../deploy/systemd/tidemill-workers-restart.timer"),
    ),
];

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/systemd")
}

/// A fresh directory.
fn place(name: &str) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir_all(&place).expect("the directory can be made");
    place
}

/// The value of a setting.
fn setting(unit: &str, section: &str, name: &str) -> String {
    let (_, text) = UNITS.iter().find(|(known, _)| *known == unit).expect("there is such a unit");
    let mut inside = false;
    let mut found = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if line.starts_with('[') {
            inside = line == format!("[{section}]");
        } else if let Some((key, value)) = line.split_once('=')
            && inside
            && key == name
        {
            found.push(value);
        }
    }
    assert_eq!(found.len(), 1, "{unit} says {section}.{name} once");
    found[0].to_owned()
}

#[test]
fn in_13_the_rules_of_restarts() {
    let worker = "tidemill-worker@.service";
    for (section, name, value) in [
        ("Service", "MemoryMax", "1G"),
        ("Service", "OOMPolicy", "continue"),
        ("Service", "Restart", "always"),
        ("Service", "RestartSec", "5"),
        // More than the grace of 4 s and the 5 s between SIGTERM and SIGKILL of a task.
        ("Service", "Environment", "SHUTDOWN_GRACE_MS=4000"),
        ("Service", "TimeoutStopSec", "15"),
        ("Unit", "StartLimitBurst", "10"),
        // Ten times 10 s of life at most and 5 s of pause.
        ("Unit", "StartLimitIntervalSec", "150"),
    ] {
        assert_eq!(setting(worker, section, name), value, "{name}");
    }
    let wanted = setting("tidemill-workers.target", "Unit", "Wants");
    let expected = ["tidemill-worker@1.service", "tidemill-worker@2.service", "tidemill-worker@3.service"];
    assert_eq!(wanted.split(' ').collect::<Vec<_>>(), expected);
    assert_eq!(setting("tidemill-workers-restart.timer", "Timer", "OnCalendar"), "*-*-* 02:00:00");
    let restart = setting("tidemill-workers-restart.service", "Service", "ExecStart");
    assert_eq!(restart, "/usr/bin/systemctl try-restart tidemill-worker@*.service");
}

#[test]
fn in_13_systemd_takes_the_units() {
    let tool = "systemd-analyze";
    if Command::new(tool).arg("--version").output().is_err() {
        eprintln!("{tool} is not here; skipped what needs it");
        return;
    }
    let place = place("units");
    for (name, text) in UNITS {
        let text = text
            .replace("/usr/lib/tidemill/run-worker", "/bin/true")
            .replace("/usr/bin/tidemill", "/bin/true");
        std::fs::write(place.join(name.replace('@', "@1")), text).expect("the file can be written");
    }
    for (name, _) in UNITS {
        let unit = place.join(name.replace('@', "@1"));
        let path = format!("{}:", place.display());
        let told = Command::new(tool).arg("verify").arg(&unit).env("SYSTEMD_UNIT_PATH", path).output();
        let told = told.expect("it was here a moment ago");
        let words = String::from_utf8_lossy(&told.stderr);
        assert!(
            told.status.success() && !words.contains(name.trim_end_matches(".service")),
            "{name}: {words}"
        );
    }
}

#[test]
fn in_14_log_files() {
    let place = place("logs");
    let program = place.join("program");
    std::fs::write(&program, "#!/bin/sh\necho \"out $*\"\necho err >&2\n").expect("the file can be written");
    let made = Command::new("chmod").arg("+x").arg(&program).status();
    assert!(made.is_ok_and(|status| status.success()));
    let ran = Command::new(deploy().join("run-worker"))
        .current_dir(&place)
        .env("TIDEMILL_PROGRAM", &program)
        // Its output ends when the processes that write the files have ended.
        .output()
        .expect("the script runs");
    assert!(ran.status.success(), "{ran:?}");
    let read =
        |name: &str| std::fs::read_to_string(place.join(".output/logs").join(name)).unwrap_or_default();
    assert_eq!((read("out.log").as_str(), read("err.log").as_str()), ("out worker --backend aws\n", "err\n"));
    let mut combined: Vec<_> = read("combined.log").lines().map(str::to_owned).collect();
    combined.sort();
    assert_eq!(combined, ["err", "out worker --backend aws"]);
}
