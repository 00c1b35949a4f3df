//! A disk without space: groups are refused before anything of them is written.

use tidemill_embedded::log::{LogConfig, LogError};

use super::mem_disk::MemDisk;
use super::support::{Bench, event, small};

/// Writes groups of ten events until the log refuses one.
fn fill(bench: &mut Bench) -> LogError {
    loop {
        let next = bench.log.next_seq().0;
        if let Err(error) = bench.write_events((next..next + 10).map(event).collect()) {
            return error;
        }
    }
}

#[test]
fn a_full_disk_refuses_groups_and_takes_them_again_later() {
    let disk = MemDisk::new();
    let mut bench = Bench::open(&disk, small());
    disk.set_space(100 << 10);
    for space in [100, 200, 300] {
        disk.set_space(space << 10);
        let before = disk.used();
        for _ in 0..3 {
            let refused = fill(&mut bench);
            assert!(matches!(refused, LogError::Full { .. }), "{refused}");
            bench.assert_whole();
        }
        assert!(disk.used() > before, "there was room for a few segments");
        // A crash now loses nothing.
        for left in [disk.after_kill(), disk.after_power_loss(None)] {
            Bench { known: bench.known.clone(), ..Bench::open(&left, small()) }.assert_whole();
        }
        assert!(matches!(bench.keeper.prepare_spare(), Err(LogError::Full { .. })));
        assert!(!disk.names().iter().any(|name| name.contains("spare")));
    }
    // Sealing makes room again when there is enough for the new file.
    disk.set_space(320 << 10);
    bench.seal_all();
    assert!(disk.used() < 200 << 10, "{}", disk.used());
    let next = bench.log.next_seq().0;
    bench.write_events((next..next + 10).map(event).collect()).unwrap();
    bench.assert_whole();
}

#[test]
fn what_was_reserved_can_be_written_on_a_full_disk() {
    let disk = MemDisk::new();
    let mut bench = Bench::open(&disk, small());
    for bytes in [1_000, 20_000, 100_000] {
        disk.set_space(u64::MAX);
        bench.log.reserve(bytes).unwrap();
        disk.set_space(disk.used());
        let mut group = tidemill_embedded::log::Group::new();
        group.push_control(&vec![7; usize::try_from(bytes).unwrap() - 4]);
        let appended = bench.log.append(&group).unwrap();
        bench.log.sync().unwrap();
        bench.log.publish(&group, appended).unwrap();
    }
    disk.set_space(disk.used());
    assert!(matches!(bench.log.reserve(50_000), Err(LogError::Full { .. })));
    assert!(bench.log.room() < 50_000);
    disk.set_space(u64::MAX);
    bench.log.reserve(50_000).unwrap();
}

#[test]
fn a_group_larger_than_a_segment_gets_a_larger_one() {
    let disk = MemDisk::new();
    let mut bench = Bench::open(&disk, small());
    bench.keeper.prepare_spare().unwrap();
    for count in [10, 2_000, 10] {
        let next = bench.log.next_seq().0;
        bench.write_events((next..next + count).map(event).collect()).unwrap();
    }
    bench.seal_all();
    bench.assert_whole();
    Bench { known: bench.known, ..Bench::open(&disk, small()) }.assert_whole();
}

#[test]
fn sealing_without_space_changes_nothing() {
    let disk = MemDisk::new();
    let config = LogConfig { dictionary_bytes: 0, ..small() };
    let mut bench = Bench::open(&disk, config);
    while bench.reader.segments().len() < 3 {
        let next = bench.log.next_seq().0;
        bench.write_events((next..next + 10).map(event).collect()).unwrap();
    }
    disk.set_space(disk.used() + 100);
    assert!(matches!(bench.keeper.seal_next(), Err(LogError::Full { .. })));
    assert!(!disk.names().iter().any(|name| name.contains("sealed")));
    bench.assert_whole();
    disk.set_space(u64::MAX);
    bench.seal_all();
    bench.assert_whole();
}
