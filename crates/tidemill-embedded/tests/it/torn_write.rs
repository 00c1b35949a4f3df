//! Files whose end was torn: what was not acknowledged may go, what was acknowledged may not.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use tidemill_model::{AccessPath, JobId};

use crate::export_import::events_of;
use crate::lab::{Fresh, Lab, diamond, plain, publish, submit_job};

/// How the end of the file is spoilt.
#[derive(Debug, Clone, Copy)]
enum Tear {
    Cut,
    Garbage,
    Zeros,
}

/// A store of one segment, and where its last two groups begin and end.
struct Torn {
    dir: Fresh,
    events_before: usize,
    last: std::ops::Range<u64>,
    former: u64,
}

impl Torn {
    /// With `acknowledged` the last group counts; otherwise its writer died before it could say so.
    fn new(acknowledged: bool, flushed: bool) -> Self {
        let dir = Fresh::new();
        let mut lab = Lab::open(&dir);
        lab.run(submit_job(JobId::from_u128(1), diamond(), None)).unwrap();
        lab.run(publish("s", plain("{}"), None, None)).unwrap();
        let former = end_of(&dir);
        lab.work_off();
        if flushed {
            lab.store.flush_rows().unwrap();
        }
        let events_before = events_of(&lab, AccessPath::Tenant).len();
        let mark = std::fs::read(dir.join("log/mark")).unwrap();
        let start = end_of(&dir);
        lab.run(submit_job(JobId::from_u128(2), diamond(), None)).unwrap();
        let end = end_of(&dir);
        assert!(former < start && start < end);
        drop(lab);
        if !acknowledged {
            std::fs::write(dir.join("log/mark"), &mark).unwrap();
        }
        Self { dir, events_before, last: start..end, former }
    }

    fn tear(&self, tear: Tear, at: u64) -> Fresh {
        let copy = Fresh::new();
        copy_tree(&self.dir, &copy);
        let file = OpenOptions::new().write(true).open(segment(&copy)).unwrap();
        let rest = usize::try_from(self.last.end - at).unwrap();
        match tear {
            Tear::Cut => file.set_len(at).unwrap(),
            Tear::Garbage => file.write_all_at(&vec![0xa5; rest], at).unwrap(),
            Tear::Zeros => file.write_all_at(&vec![0; rest], at).unwrap(),
        }
        copy
    }
}

fn segment(dir: &Path) -> PathBuf {
    dir.join("log/0000000001.log")
}

/// Where the log ends, as its mark says.
fn end_of(dir: &Path) -> u64 {
    let mark = std::fs::read(dir.join("log/mark")).unwrap();
    assert_eq!(mark[..4], 1u32.to_le_bytes(), "all of it fits into the first segment");
    u64::from_le_bytes(mark[4..12].try_into().unwrap())
}

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn a_tear_within_the_last_unacknowledged_group_is_accepted() {
    for flushed in [false, true] {
        let torn = Torn::new(false, flushed);
        let length = torn.last.end - torn.last.start;
        for tear in [Tear::Cut, Tear::Garbage, Tear::Zeros] {
            for at in [0, 1, 40, length / 2, length - 200].map(|offset| torn.last.start + offset) {
                let copy = torn.tear(tear, at);
                let mut lab = Lab::open(&copy);
                assert_eq!(events_of(&lab, AccessPath::Tenant).len(), torn.events_before, "{tear:?} at {at}");
                lab.assert_clean();
                // What comes next takes its place and stays.
                lab.run(submit_job(JobId::from_u128(3), diamond(), None)).unwrap();
                drop(lab);
                let lab = Lab::open(&copy);
                lab.assert_clean();
                assert!(lab.store.state().jobs().all(|job| job.head.job != JobId::from_u128(2)));
                assert!(lab.store.state().jobs().any(|job| job.head.job == JobId::from_u128(3)));
            }
        }
        // A group that was written whole counts, acknowledged or not.
        let lab = Lab::open(&torn.tear(Tear::Zeros, torn.last.end));
        assert!(lab.store.state().jobs().any(|job| job.head.job == JobId::from_u128(2)));
        lab.assert_clean();
    }
}

#[test]
fn a_tear_of_what_was_acknowledged_is_refused() {
    let torn = Torn::new(true, false);
    for tear in [Tear::Cut, Tear::Garbage, Tear::Zeros] {
        for at in
            [torn.former - 1, torn.former + 1, torn.last.start - 1, torn.last.start, torn.last.start + 50]
        {
            let refused = Lab::try_open(&torn.tear(tear, at)).err().unwrap().to_string();
            assert!(
                refused.contains("although the log's mark knows of")
                    && refused.contains("acknowledged entries are lost"),
                "{tear:?} at {at}: {refused}"
            );
        }
    }
}

#[test]
fn a_deeper_tear_is_refused_even_if_the_last_group_was_not_acknowledged() {
    let torn = Torn::new(false, false);
    for tear in [Tear::Cut, Tear::Garbage, Tear::Zeros] {
        // The last few bytes of a group may be none of its own.
        let refused = Lab::try_open(&torn.tear(tear, torn.last.start - 9)).err().unwrap().to_string();
        assert!(refused.contains("acknowledged entries are lost"), "{tear:?}: {refused}");
    }
    // A hole in the middle, with whole groups behind it.
    let copy = torn.tear(Tear::Zeros, torn.last.end);
    let file = OpenOptions::new().write(true).open(segment(&copy)).unwrap();
    file.write_all_at(&[0xa5; 8], torn.former + 60).unwrap();
    let refused = Lab::try_open(&copy).err().unwrap().to_string();
    assert!(refused.contains("log/0000000001.log is damaged at byte "), "{refused}");
}

#[test]
fn without_a_mark_the_checkpoint_knows() {
    let torn = Torn::new(true, true);
    let copy = torn.tear(Tear::Cut, torn.former);
    std::fs::write(copy.join("log/mark"), [0; 24]).unwrap();
    let refused = Lab::try_open(&copy).err().unwrap().to_string();
    assert!(refused.contains("although the checkpoint knows of"), "{refused}");
}
