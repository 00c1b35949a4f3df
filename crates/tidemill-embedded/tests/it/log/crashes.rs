//! A crash at every operation: whatever was acknowledged is there afterwards, and nothing that was never written.

use tidemill_embedded::log::{LogError, LogPosition, SegmentKind, StoredEvent};

use super::mem_disk::MemDisk;
use super::support::{Bench, Known, Random, as_entries, random_group, replay, small};

/// Writes, seals and prepares until the disk stops. Gives what was acknowledged and what was tried last.
fn work(disk: &MemDisk, random: &mut Random) -> (Vec<Known>, Vec<Known>) {
    let Ok(mut bench) = Bench::try_open(disk, small()) else { return (Vec::new(), Vec::new()) };
    for round in 0..60 {
        let group = random_group(random, bench.log.next_seq().0);
        if bench.write(as_entries(&group)).is_err() {
            return (bench.known, group);
        }
        let kept = match round % 9 {
            3 => bench.keeper.prepare_spare().map(|_| ()),
            5 | 8 => bench.keeper.seal_next().map(|_| ()),
            _ => Ok(()),
        };
        if kept.is_err() {
            break;
        }
    }
    (bench.known, Vec::new())
}

fn check(disk: &MemDisk, acknowledged: &[Known], tried: &[Known], what: &str) {
    let bench = Bench::try_open(disk, small()).unwrap_or_else(|error| panic!("{what}: {error}"));
    let found = bench.replay(LogPosition::START).unwrap();
    let all_or_nothing = found == acknowledged || found == [acknowledged, tried].concat();
    assert!(all_or_nothing, "{what}: {} entries of {} and {}", found.len(), acknowledged.len(), tried.len());
    assert_eq!(bench.keeper.verify().unwrap(), Vec::<String>::new(), "{what}");
    // And it goes on, through another crash.
    let mut bench = Bench { known: found, ..bench };
    let group = random_group(&mut Random::new(5), bench.log.next_seq().0);
    bench.write(as_entries(&group)).unwrap();
    bench.seal_all();
    bench.assert_whole();
    let after = Bench::open(&disk.after_power_loss(None), small());
    assert_eq!(after.replay(LogPosition::START).unwrap(), bench.known, "{what}, again");
    assert!(!disk.names().iter().any(|name| name.contains(".tmp")), "{what}");
}

#[test]
fn every_operation_may_be_the_last() {
    let seed = 42;
    let counting = MemDisk::new();
    work(&counting, &mut Random::new(seed));
    let operations = counting.operations();
    assert!(operations > 200);
    for stop in 1..=operations {
        let disk = MemDisk::new();
        disk.stop_after(stop);
        let (acknowledged, tried) = work(&disk, &mut Random::new(seed));
        disk.heal();
        check(&disk.after_kill(), &acknowledged, &tried, &format!("killed at {stop}"));
        check(&disk.after_power_loss(None), &acknowledged, &tried, &format!("power loss at {stop}"));
        for mix in 0..2 {
            let mixed = disk.after_power_loss(Some(&mut Random::new(stop * 10 + mix)));
            check(&mixed, &acknowledged, &tried, &format!("power loss at {stop}, mixed {mix}"));
        }
        // A kill, a reopen that reads what was never synced, then a power loss.
        let killed = disk.after_kill();
        let found = Bench::open(&killed, small()).replay(LogPosition::START).unwrap();
        let lost = Bench::open(&killed.after_power_loss(None), small());
        assert_eq!(lost.replay(LogPosition::START).unwrap(), found, "seen after {stop}, then lost");
    }
}

#[test]
fn one_failure_in_the_background_disturbs_nobody() {
    let prepared = || {
        let disk = MemDisk::new();
        let mut random = Random::new(9);
        let mut bench = Bench::open(&disk, small());
        while bench.reader.segments().len() < 3 {
            let group = random_group(&mut random, bench.log.next_seq().0);
            bench.write(as_entries(&group)).unwrap();
        }
        (disk, bench)
    };
    let (disk, bench) = prepared();
    let before = disk.operations();
    bench.keeper.seal_next().unwrap();
    for failing in 1..=disk.operations() - before {
        let (disk, bench) = prepared();
        disk.fail_once(failing);
        let failed = bench.keeper.seal_next();
        bench.assert_whole();
        // A failed sync is never repeated on the same file: the next try writes a new one.
        while bench.keeper.seal_next().unwrap() {}
        assert_eq!(bench.reader.segments()[0].kind, SegmentKind::Sealed, "{failing}: {failed:?}");
        bench.assert_whole();
        let known = bench.known.clone();
        let mixed = disk.after_power_loss(Some(&mut Random::new(failing)));
        for left in [disk.after_kill(), disk.after_power_loss(None), mixed] {
            Bench { known: known.clone(), ..Bench::open(&left, small()) }.assert_whole();
        }
    }
}

#[test]
fn retention_may_stop_anywhere() {
    let prepared = || {
        let disk = MemDisk::new();
        let mut random = Random::new(10);
        let mut bench = Bench::open(&disk, small());
        while bench.reader.segments().len() < 5 {
            let group = random_group(&mut random, bench.log.next_seq().0);
            bench.write(as_entries(&group)).unwrap();
        }
        bench.seal_all();
        (disk, bench)
    };
    let keep = |stored: &StoredEvent| stored.seq.0.is_multiple_of(2);
    let retain = |bench: &Bench| -> Result<(), LogError> {
        bench.keeper.rewrite(3, keep, |_| true)?;
        bench.keeper.drop_segment(2)?;
        bench.keeper.drop_segment(1)
    };
    let (disk, bench) = prepared();
    let before = disk.operations();
    retain(&bench).unwrap();
    let operations = disk.operations() - before;
    let second = bench.reader.segments()[0].first_seq;
    for stop in 1..=operations {
        let (disk, bench) = prepared();
        disk.stop_after(stop);
        let stopped = retain(&bench);
        assert!(stopped.is_err() || stop == operations, "{stop} of {operations}");
        let mixed = disk.after_power_loss(Some(&mut Random::new(stop)));
        for left in [disk.after_kill(), disk.after_power_loss(None), mixed] {
            let bench_after = Bench::open(&left, small());
            assert_eq!(bench_after.keeper.verify().unwrap(), Vec::<String>::new(), "stopped at {stop}");
            // Behind the segments that were worked on everything is there; in them, only what was to go is missing.
            let found = super::support::events(&replay(&bench_after.reader, LogPosition::START).unwrap());
            let third = bench.reader.segments();
            let untouched = third.iter().find(|segment| segment.id == 4).unwrap().first_seq;
            let mut missing = bench.events();
            missing.retain(|stored| !found.contains(stored));
            assert!(
                missing.iter().all(|s| s.seq < second || (s.seq < untouched && !keep(s))),
                "stopped at {stop}"
            );
            retain(&bench_after)
                .or_else(|error| match error {
                    LogError::NoSuchSegment { .. } => Ok(()),
                    other => Err(other),
                })
                .unwrap();
        }
    }
}
