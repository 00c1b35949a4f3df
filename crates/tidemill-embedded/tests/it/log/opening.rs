//! How the log is opened: what is cut off, what is refused.

use std::sync::Arc;

use tidemill_embedded::log::{Group, Links, Log, LogConfig, LogError, LogPosition, SegmentKind, Seq};

use super::mem_disk::MemDisk;
use super::support::{Bench, Known, Random, as_entries, event, random_group, small};

const SEGMENT: &str = "log/0000000001.log";

/// A log of `groups` groups of three events in one segment.
fn log_of(disk: &MemDisk, groups: u64) -> Bench {
    let mut bench =
        Bench::open(disk, LogConfig { hasty_segment_bytes: 64 << 10, segment_bytes: 64 << 10, ..small() });
    for group in 0..groups {
        bench.write_events((0..3).map(|number| event(group * 3 + number)).collect()).unwrap();
    }
    bench
}

#[test]
fn a_new_log_is_empty_and_opens_again() {
    let disk = MemDisk::new();
    for _ in 0..3 {
        let bench = Bench::open(&disk, small());
        assert_eq!(bench.log.next_seq(), Seq(1));
        bench.assert_whole();
        assert_eq!(bench.reader.read(Seq(1)).unwrap(), None);
    }
}

#[test]
fn everything_comes_back_after_a_reopen() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let disk = MemDisk::new();
        let mut bench = Bench::open(&disk, small());
        for _ in 0..120 {
            let group = random_group(&mut random, bench.log.next_seq().0);
            bench.write(as_entries(&group)).unwrap();
            match random.below(12) {
                0 => drop(bench.keeper.prepare_spare().unwrap()),
                1 => drop(bench.keeper.seal_next().unwrap()),
                2 => {
                    let (known, ends) = (bench.known, bench.ends);
                    bench = Bench { known, ends, ..Bench::open(&disk, small()) };
                }
                _ => {}
            }
        }
        bench.assert_whole();
        let reopened = Bench { known: bench.known.clone(), ..Bench::open(&disk, small()) };
        reopened.assert_whole();
        assert!(reopened.reader.segments().len() > 2, "seed {seed}");
        // A replay can start after any group, sealed or not, and numbers find their events.
        for end in &bench.ends {
            let tail = reopened.replay(*end).unwrap();
            assert_eq!(tail, bench.known[bench.known.len() - tail.len()..], "seed {seed} from {end}");
            let first = tail.iter().find_map(|known| match known {
                Known::Event(stored) => Some(stored.seq),
                Known::Control(_) => None,
            });
            assert_eq!(first.unwrap_or(reopened.log.next_seq()), end.next_seq);
        }
        for stored in bench.events() {
            assert_eq!(reopened.reader.read(stored.seq).unwrap().as_ref(), Some(&stored));
        }
        assert_eq!(reopened.reader.read_from(Seq(5), 50).unwrap(), bench.events()[4..54]);
        assert_eq!(reopened.reader.end(), *bench.ends.last().unwrap());
    }
}

#[test]
fn a_tail_torn_at_any_byte_is_cut_off() {
    let disk = MemDisk::new();
    let mut bench = log_of(&disk, 4);
    let before = bench.log.end();
    let mut group = Group::new();
    for number in 12..15 {
        group.push_event(Seq(number + 1), &event(number), &Links::default());
    }
    let appended = bench.log.append(&group).unwrap();
    let (start, end) =
        (usize::try_from(before.offset).unwrap(), usize::try_from(appended.end().offset).unwrap());
    let whole = disk.bytes(SEGMENT);
    for cut in start..=end {
        for shape in ["zeros", "short", "garbage", "late"] {
            let mut bytes = whole.clone();
            match shape {
                "zeros" => bytes[cut..].fill(0),
                "short" => bytes.truncate(cut),
                "garbage" => bytes[cut..].fill(0xa5),
                _ => bytes[start..cut].fill(0),
            }
            let torn = disk.after_kill();
            torn.set_bytes(SEGMENT, &bytes);
            let mut reopened = Bench::open(&torn, small());
            let events = reopened.log.next_seq().0 - 1;
            let is_whole = bytes.get(..end) == Some(&whole[..end]);
            // The last bytes are zeros anyway, so a cut within them does no harm.
            assert!(events == 12 || events == 15, "{shape} at {cut}");
            assert!(!is_whole || events == 15, "{shape} at {cut}");
            assert!(events == 12 || shape == "late" || cut + 8 > end, "{shape} at {cut}");
            // What is written next takes the place of what was cut off, and stays.
            reopened.known.clone_from(&bench.known);
            if events == 15 {
                continue;
            }
            reopened.write_events(vec![event(100)]).unwrap();
            reopened.assert_whole();
            let again = Bench { known: reopened.known, ..Bench::open(&torn, small()) };
            again.assert_whole();
        }
    }
}

#[test]
fn a_deeper_cut_is_refused() {
    let disk = MemDisk::new();
    let bench = log_of(&disk, 4);
    let whole = disk.bytes(SEGMENT);
    let last_start = usize::try_from(bench.ends[2].offset).unwrap();
    for cut in [64, 65, last_start - 100, last_start - 1, last_start, last_start + 30] {
        for short in [true, false] {
            let cut_disk = disk.after_kill();
            let mut bytes = whole.clone();
            if short {
                bytes.truncate(cut);
            } else {
                bytes[cut..].fill(0);
            }
            cut_disk.set_bytes(SEGMENT, &bytes);
            let refused = Bench::try_open(&cut_disk, small()).err().unwrap();
            assert!(matches!(refused, LogError::Lost { known_by: "the log's mark", .. }), "{cut}: {refused}");
            // Without a readable mark the checkpoint still knows.
            for mark in [&[][..], &[0; 24], &[7; 24], &disk.bytes("log/mark")[..20]] {
                cut_disk.set_bytes("log/mark", mark);
                let known = *bench.ends.last().unwrap();
                let refused = Log::open(Arc::new(cut_disk.clone()), small(), Some(known)).err().unwrap();
                assert!(matches!(refused, LogError::Lost { known_by: "the checkpoint", .. }), "{refused}");
                assert!(refused.to_string().contains(&known.to_string()), "{refused}");
            }
            cut_disk.delete("log/mark");
            assert!(Log::open(Arc::new(cut_disk.clone()), small(), None).is_ok());
        }
    }
}

#[test]
fn an_old_mark_is_fine() {
    let disk = MemDisk::new();
    let mut bench = log_of(&disk, 2);
    let old = disk.bytes("log/mark");
    bench.write_events(vec![event(50)]).unwrap();
    disk.set_bytes("log/mark", &old);
    let reopened = Bench { known: bench.known, ..Bench::open(&disk, small()) };
    reopened.assert_whole();
    assert_ne!(disk.bytes("log/mark"), old);
}

#[test]
fn a_flipped_bit_before_the_end_is_refused_with_its_place() {
    let disk = MemDisk::new();
    let bench = log_of(&disk, 5);
    let whole = disk.bytes(SEGMENT);
    let starts: Vec<u64> = [64].into_iter().chain(bench.ends.iter().map(|end| end.offset)).collect();
    let mut random = Random::new(3);
    for _ in 0..400 {
        let group = usize::try_from(random.below(4)).unwrap();
        let length = starts[group + 1] - starts[group];
        let at = usize::try_from(starts[group] + random.below(length)).unwrap();
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << random.below(8);
        let damaged = disk.after_kill();
        damaged.set_bytes(SEGMENT, &bytes);
        match Bench::try_open(&damaged, small()) {
            Err(LogError::Corrupt { file, offset, .. }) => {
                assert_eq!((file.as_str(), offset), (SEGMENT, starts[group]), "byte {at}");
            }
            // Bytes between a group and the next multiple of 8 are not used.
            Ok(_) => assert!(starts[group + 1] - (at as u64) <= 8, "byte {at}"),
            Err(other) => panic!("byte {at}: {other}"),
        }
    }
}

#[test]
fn a_flipped_bit_in_a_sealed_segment_is_never_believed() {
    let mut random = Random::new(4);
    let disk = MemDisk::new();
    let mut bench = Bench::open(&disk, small());
    for _ in 0..60 {
        let group = random_group(&mut random, bench.log.next_seq().0);
        bench.write(as_entries(&group)).unwrap();
    }
    bench.seal_all();
    let path = "log/0000000001.sealed";
    let whole = disk.bytes(path);
    for _ in 0..600 {
        let mut bytes = whole.clone();
        let at = usize::try_from(random.below(bytes.len() as u64)).unwrap();
        bytes[at] ^= 1 << random.below(8);
        let damaged = disk.after_kill();
        damaged.set_bytes(path, &bytes);
        match Bench::try_open(&damaged, small()) {
            Err(LogError::Corrupt { .. } | LogError::Newer { .. }) => {}
            Err(other) => panic!("byte {at}: {other}"),
            Ok(reopened) => {
                let findings = reopened.keeper.verify().unwrap();
                assert!(!findings.is_empty() && findings[0].contains(path), "byte {at}: {findings:?}");
                if let Ok(found) = reopened.replay(LogPosition::START) {
                    assert_eq!(found, bench.known, "byte {at}");
                }
            }
        }
    }
}

#[test]
fn missing_files_are_noticed() {
    let disk = MemDisk::new();
    let mut bench = Bench::open(&disk, small());
    while bench.reader.segments().len() < 4 {
        let next = bench.log.next_seq().0;
        bench.write_events((next..next + 20).map(event).collect()).unwrap();
    }
    bench.keeper.seal_next().unwrap();
    assert_eq!(bench.reader.segments()[0].kind, SegmentKind::Sealed);
    for path in ["log/FORMAT", "log/0000000001.sealed", "log/0000000002.log", "log/0000000004.log"] {
        let lacking = disk.after_kill();
        lacking.delete(path);
        let refused = Bench::try_open(&lacking, small()).err().unwrap_or_else(|| panic!("without {path}"));
        assert!(matches!(refused, LogError::Corrupt { .. } | LogError::Lost { .. }), "{path}: {refused}");
    }
}

#[test]
fn newer_versions_are_refused_by_name() {
    let disk = MemDisk::new();
    let mut bench = Bench::open(&disk, small());
    while bench.reader.segments().len() < 3 {
        let next = bench.log.next_seq().0;
        bench.write_events((next..next + 20).map(event).collect()).unwrap();
    }
    bench.keeper.seal_next().unwrap();
    let format = String::from_utf8(disk.bytes("log/FORMAT")).unwrap();
    let newer = |path: &str, bytes: &[u8]| {
        let disk = disk.after_kill();
        disk.set_bytes(path, bytes);
        Bench::try_open(&disk, small()).err().unwrap().to_string()
    };
    assert_eq!(
        newer("log/FORMAT", format.replace("tidemill-log 1", "tidemill-log 2").as_bytes()),
        "log/FORMAT has format version 2; this program knows versions up to 1"
    );
    for path in ["log/0000000001.sealed", "log/0000000002.log"] {
        let mut bytes = disk.bytes(path);
        bytes[8] = 9;
        assert_eq!(
            newer(path, &bytes),
            format!("{path} has format version 9; this program knows versions up to 1")
        );
    }
}

#[test]
fn groups_must_be_synced_and_in_sequence() {
    let disk = MemDisk::new();
    let mut bench = log_of(&disk, 1);
    let mut group = Group::new();
    group.push_event(Seq(9), &event(1), &Links::default());
    let refused = bench.log.append(&group).err().unwrap();
    assert_eq!(refused.to_string(), "the group starts with event 9; the next one is 4");
    group.clear();
    group.push_control(b"x");
    let appended = bench.log.append(&group).unwrap();
    assert!(matches!(bench.log.append(&group), Err(LogError::NotSynced)));
    assert!(matches!(bench.log.publish(&group, appended), Err(LogError::NotSynced)));
}

#[test]
fn a_failed_write_or_sync_poisons_the_log() {
    // The operations of a write are: the frame, the sync, the mark.
    for failing in 1..=3 {
        let disk = MemDisk::new();
        let mut bench = log_of(&disk, 2);
        disk.fail_once(failing);
        assert!(matches!(bench.write_events(vec![event(70)]), Err(LogError::Poisoned { .. })), "{failing}");
        assert!(matches!(bench.write_events(vec![event(71)]), Err(LogError::Poisoned { .. })), "{failing}");
        assert!(matches!(bench.log.sync(), Err(LogError::Poisoned { .. })), "{failing}");
        // What was published before can still be read, and a reopen goes on.
        assert!(bench.reader.read(Seq(6)).unwrap().is_some());
        let mut reopened = Bench::open(&disk, small());
        reopened.write_events(vec![event(72)]).unwrap();
        assert!(reopened.log.next_seq() >= Seq(8));
    }
}
