//! Data directories that cannot be used: held by another process, read-only, written by a newer release.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use tidemill_embedded::{Embedded, OpenError};
use tidemill_engine::backend::Fault;
use tidemill_engine::clock::SystemClock;

use crate::lab::{Fresh, Lab, announce, plain, publish, small};
use crate::tmpfs::Tmpfs;

/// What tells the child which directory to open.
const CHILD: &str = "TIDEMILL_OPEN_CHILD";

fn open(dir: &Path) -> Result<Embedded, OpenError> {
    Embedded::open(dir, small(), Arc::new(SystemClock::start()))
}

/// The second process. Run by name, and skipped otherwise.
#[test]
#[ignore = "the child process of another test"]
#[expect(clippy::disallowed_methods, reason = "tests have no other way in")]
fn second_process() {
    if let Ok(dir) = std::env::var(CHILD) {
        match open(Path::new(&dir)) {
            Ok(_) => println!("said nothing"),
            Err(error) => println!("said {error}"),
        }
    }
}

fn said_by_second_process(dir: &Path) -> String {
    let done = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "unusable_dir::second_process", "--ignored", "--nocapture"])
        .env(CHILD, dir)
        .output()
        .unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    let said = text.lines().find_map(|line| line.split_once("said ")).map(|(_, said)| said.to_owned());
    said.unwrap_or_else(|| panic!("{text}"))
}

#[test]
fn a_second_process_is_told_who_holds_the_directory() {
    let fresh = Fresh::new();
    let backend = open(&fresh).unwrap();
    let expected = format!(
        "the data directory {} is in use by process {}; use its server, or stop it first",
        fresh.display(),
        std::process::id()
    );
    assert_eq!(said_by_second_process(&fresh), expected);
    // Nor may this process open it twice.
    assert_eq!(open(&fresh).err().unwrap().to_string(), expected);
    drop(backend);
    assert_eq!(said_by_second_process(&fresh), "nothing");
    open(&fresh).unwrap();
}

#[test]
fn a_read_only_file_system_is_refused_by_name() {
    let dir = Fresh::new();
    let Some(disk) = Tmpfs::mount(dir.join("disk"), 2 << 10) else { return };
    open(&disk).unwrap();
    disk.make_read_only();
    let refused = open(&disk).err().unwrap().to_string();
    let expected = format!("the data directory {} cannot be used: Read-only file system", disk.display());
    assert!(refused.starts_with(&expected), "{refused}");
    let refused = open(&disk.join("new")).err().unwrap().to_string();
    assert!(refused.contains("new cannot be used: Read-only file system"), "{refused}");
}

#[test]
fn a_directory_without_the_right_to_write_is_refused_by_name() {
    let fresh = Fresh::new();
    std::fs::set_permissions(&*fresh, std::fs::Permissions::from_mode(0o500)).unwrap();
    if std::fs::write(fresh.join("probe"), "").is_ok() {
        let test = "unusable_dir::a_directory_without_the_right_to_write_is_refused_by_name";
        announce(&format!("SKIPPED {test}: root may write everywhere"));
        return;
    }
    let refused = open(&fresh).err().unwrap().to_string();
    let expected = format!("the data directory {} cannot be used: Permission denied", fresh.display());
    assert!(refused.starts_with(&expected), "{refused}");
}

#[test]
fn a_file_in_the_place_of_the_directory_is_refused_by_name() {
    let fresh = Fresh::new();
    let path = fresh.join("data");
    std::fs::write(&path, "not a directory").unwrap();
    let refused = open(&path).err().unwrap().to_string();
    assert!(
        refused.starts_with(&format!("the data directory {} cannot be used: ", path.display())),
        "{refused}"
    );
}

#[test]
fn a_newer_format_is_refused_and_left_alone() {
    let fresh = Fresh::new();
    Lab::open(&fresh).run(publish("s", plain("{}"), None, None)).unwrap();
    let path = fresh.join("log/FORMAT");
    let old = std::fs::read_to_string(&path).unwrap();
    let newer = old.replace("tidemill-log 1", "tidemill-log 2");
    assert_ne!(old, newer);
    std::fs::write(&path, &newer).unwrap();
    for _ in 0..2 {
        let refused = open(&fresh).err().unwrap();
        assert!(matches!(refused, OpenError::Store(Fault::Newer(_))), "{refused:?}");
        assert_eq!(
            refused.to_string(),
            "the store is of a newer release: log/FORMAT has format version 2; this program knows versions up to 1"
        );
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), newer);
    std::fs::write(&path, old).unwrap();
    Lab::open(&fresh).assert_clean();
}
