//! What the simulated disk promises, and what it does not.

use std::collections::BTreeSet;
use std::io::ErrorKind;

use super::*;

fn disk() -> SimDisk {
    let disk = SimDisk::new(1);
    disk.create_dir("d").unwrap();
    disk
}

fn contents(disk: &SimDisk, path: &str) -> Option<Vec<u8>> {
    let file = disk.open(path).ok()?;
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    Some(bytes)
}

/// All that a crash can leave of a file, over many seeds.
fn fates(prepare: impl Fn(&SimDisk)) -> BTreeSet<Option<Vec<u8>>> {
    let fate = |seed| {
        let disk = disk();
        prepare(&disk);
        disk.crash(&mut Rng::new(seed));
        contents(&disk, "d/f")
    };
    (0..400).map(fate).collect()
}

fn write_durably(disk: &SimDisk, bytes: &[u8]) -> Arc<dyn DiskFile> {
    let file = disk.create("d/f").unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir("d").unwrap();
    file
}

#[test]
fn what_was_synced_survives_a_crash() {
    let found = fates(|disk| drop(write_durably(disk, b"whole")));
    assert_eq!(found, BTreeSet::from([Some(b"whole".to_vec())]));
}

#[test]
fn a_synced_file_may_lose_its_name_but_not_its_bytes() {
    let found = fates(|disk| {
        let file = disk.create("d/f").unwrap();
        file.write_at(b"whole", 0).unwrap();
        file.sync_data().unwrap();
    });
    assert_eq!(found, BTreeSet::from([None, Some(b"whole".to_vec())]));
}

#[test]
fn unsynced_sectors_have_each_its_own_fate() {
    let found = fates(|disk| {
        let file = write_durably(disk, &[b'a'; 2 * SECTOR_BYTES]);
        file.write_at(&[b'b'; 2 * SECTOR_BYTES], 0).unwrap();
        file.write_at(b"c", 0).unwrap();
    });
    let heads: BTreeSet<(u8, u8, u8)> =
        found.iter().flatten().map(|bytes| (bytes[0], bytes[1], bytes[SECTOR_BYTES])).collect();
    // Each sector is old or new; the first one also has a version between. No sector is torn in itself.
    let expected = [
        (b'a', b'a', b'a'),
        (b'a', b'a', b'b'),
        (b'b', b'b', b'a'),
        (b'b', b'b', b'b'),
        (b'c', b'b', b'a'),
        (b'c', b'b', b'b'),
    ];
    assert_eq!(heads, BTreeSet::from(expected));
}

#[test]
fn a_length_may_be_kept_without_the_bytes_and_the_other_way_round() {
    let found = fates(|disk| {
        let file = write_durably(disk, b"a");
        file.write_at(&[b'b'; SECTOR_BYTES], SECTOR_BYTES as u64).unwrap();
    });
    let shapes: BTreeSet<(usize, Option<u8>)> =
        found.iter().flatten().map(|bytes| (bytes.len(), bytes.get(SECTOR_BYTES).copied())).collect();
    let grown = 2 * SECTOR_BYTES;
    assert_eq!(shapes, BTreeSet::from([(1, None), (grown, Some(0)), (grown, Some(b'b'))]));
}

#[test]
fn what_was_cut_off_reads_as_zero_when_the_file_grows_again() {
    let disk = disk();
    let file = write_durably(&disk, &[b'a'; 2 * SECTOR_BYTES]);
    file.set_len(10).unwrap();
    file.set_len(2 * SECTOR_BYTES as u64).unwrap();
    let mut expected = vec![0; 2 * SECTOR_BYTES];
    expected[..10].fill(b'a');
    assert_eq!(contents(&disk, "d/f").unwrap(), expected);
    file.sync_data().unwrap();
    disk.crash(&mut Rng::new(1));
    assert_eq!(contents(&disk, "d/f").unwrap(), expected);
}

#[test]
fn renames_and_removals_last_only_once_the_directory_is_synced() {
    let replace = |disk: &SimDisk| {
        write_durably(disk, b"old");
        let new = disk.create("d/new").unwrap();
        new.write_at(b"new", 0).unwrap();
        new.sync_data().unwrap();
        disk.rename("d/new", "d/f").unwrap();
    };
    let both = BTreeSet::from([Some(b"old".to_vec()), Some(b"new".to_vec())]);
    assert_eq!(fates(replace), both);
    let synced = fates(|disk| {
        replace(disk);
        disk.sync_dir("d").unwrap();
    });
    assert_eq!(synced, BTreeSet::from([Some(b"new".to_vec())]));

    let remove = |disk: &SimDisk| {
        write_durably(disk, b"old");
        disk.remove("d/f").unwrap();
    };
    assert_eq!(fates(remove), BTreeSet::from([None, Some(b"old".to_vec())]));
}

#[test]
fn a_failed_sync_of_a_directory_never_brings_an_old_name_back() {
    for seed in 0..200 {
        let disk = SimDisk::new(seed);
        disk.create_dir("d").unwrap();
        disk.create("d/draft").unwrap();
        disk.rename("d/draft", "d/spare").unwrap();
        disk.rename("d/spare", "d/f").unwrap();
        disk.trouble(Operation::SyncDir, Trouble::Io, 1_000);
        disk.sync_dir("d").unwrap_err();
        disk.crash(&mut Rng::new(seed));
        assert!(disk.list("d").unwrap().len() <= 1, "seed {seed}: {:?}", disk.list("d"));
    }
}

#[test]
fn a_killed_process_leaves_everything_and_its_handles_die() {
    let disk = disk();
    let file = disk.create("d/f").unwrap();
    file.write_at(b"unsynced", 0).unwrap();
    disk.kill();
    assert_eq!(contents(&disk, "d/f").unwrap(), b"unsynced");
    assert!(file.write_at(b"x", 0).is_err());
    let lost = (0..100).any(|seed| {
        let disk = self::disk();
        disk.create("d/f").unwrap().write_at(b"unsynced", 0).unwrap();
        disk.kill();
        disk.crash(&mut Rng::new(seed));
        contents(&disk, "d/f").as_deref() != Some(b"unsynced".as_slice())
    });
    assert!(lost, "a kill must not make anything durable");
}

#[test]
fn after_a_failed_sync_nothing_is_sure_even_if_the_next_one_passes() {
    let found = fates(|disk| {
        let file = write_durably(disk, b"a");
        file.write_at(b"b", 0).unwrap();
        disk.trouble(Operation::Sync, Trouble::Io, 1_000);
        file.sync_data().unwrap_err();
        disk.end_troubles();
        file.sync_data().unwrap();
    });
    // One seed of the disk gives one fate here; over several disks both occur.
    assert_eq!(found.len(), 1);
    let over_disks: BTreeSet<Vec<u8>> = (0..50)
        .map(|seed| {
            let disk = SimDisk::new(seed);
            disk.create_dir("d").unwrap();
            let file = write_durably(&disk, b"a");
            file.write_at(b"b", 0).unwrap();
            disk.trouble(Operation::Sync, Trouble::Io, 1_000);
            file.sync_data().unwrap_err();
            disk.end_troubles();
            file.sync_data().unwrap();
            assert_eq!(contents(&disk, "d/f").unwrap(), b"b", "programs see what they wrote");
            disk.crash(&mut Rng::new(seed));
            contents(&disk, "d/f").unwrap()
        })
        .collect();
    assert_eq!(over_disks, BTreeSet::from([b"a".to_vec(), b"b".to_vec()]));
}

#[test]
fn the_power_goes_within_the_named_operation_and_nothing_works_after_it() {
    let disk = disk();
    let file = write_durably(&disk, b"old");
    let next = disk.operations() + 1;
    disk.cut_power_at(next);
    assert!(!disk.power_is_off());
    assert!(file.write_at(b"new", 0).is_err());
    assert!(disk.power_is_off());
    assert!(file.sync_data().is_err() && file.len().is_err() && disk.list("d").is_err());
    assert_eq!(disk.operations(), next, "what fails for want of power is no operation");
    disk.crash(&mut Rng::new(3));
    assert!(contents(&disk, "d/f").is_some());
}

#[test]
fn a_full_disk_refuses_new_sectors_but_not_allocated_ones() {
    let disk = disk();
    let file = disk.create("d/f").unwrap();
    disk.set_capacity(Some(4 * SECTOR_BYTES as u64));
    file.allocate(4 * SECTOR_BYTES as u64).unwrap();
    assert_eq!(disk.used_bytes(), 4 * SECTOR_BYTES as u64);
    file.write_at(&[1; 4 * SECTOR_BYTES], 0).unwrap();
    let full = |error: io::Error| error.kind() == ErrorKind::StorageFull;
    assert!(full(file.write_at(b"x", 4 * SECTOR_BYTES as u64).unwrap_err()));
    let other = disk.create("d/other").unwrap();
    assert!(full(other.allocate(1).unwrap_err()) && full(other.write_at(b"x", 0).unwrap_err()));
    disk.remove("d/f").unwrap();
    other.write_at(b"x", 0).unwrap();
}

#[test]
fn each_kind_of_operation_can_fail() {
    let disk = disk();
    let file = write_durably(&disk, b"a");
    let all: [(Operation, &dyn Fn() -> io::Result<()>); 9] = [
        (Operation::Read, &|| file.read_at(&mut [0], 0).map(drop)),
        (Operation::Write, &|| file.write_at(b"b", 0)),
        (Operation::Sync, &|| file.sync_data()),
        (Operation::Allocate, &|| file.allocate(100)),
        (Operation::SetLen, &|| file.set_len(1)),
        (Operation::Create, &|| disk.create("d/g").map(drop)),
        (Operation::Rename, &|| disk.rename("d/f", "d/h")),
        (Operation::Remove, &|| disk.remove("d/f")),
        (Operation::SyncDir, &|| disk.sync_dir("d")),
    ];
    for (operation, act) in all {
        disk.trouble(operation, Trouble::Full, 1_000);
        assert_eq!(act().unwrap_err().kind(), ErrorKind::StorageFull, "{operation:?}");
        disk.end_troubles();
    }
    assert_eq!(disk.list("d").unwrap(), ["f"], "what failed did not happen");
}

#[test]
fn a_sync_that_was_removed_syncs_nothing() {
    let ignored = fates(|disk| {
        disk.ignore_sync(Operation::Sync, "d/");
        write_durably(disk, b"whole");
    });
    assert!(ignored.contains(&Some(Vec::new())), "{ignored:?}");
    let ignored = fates(|disk| {
        disk.ignore_sync(Operation::SyncDir, "d");
        write_durably(disk, b"whole");
    });
    assert!(ignored.contains(&None), "{ignored:?}");
}

#[test]
fn names_follow_the_rules_of_the_port() {
    let disk = disk();
    assert_eq!(disk.create("d/f").map(drop).map_err(|e| e.kind()), Ok(()));
    assert_eq!(disk.create("d/f").map(drop).map_err(|e| e.kind()), Err(ErrorKind::AlreadyExists));
    assert_eq!(disk.create("nowhere/f").map(drop).map_err(|e| e.kind()), Err(ErrorKind::NotFound));
    assert_eq!(disk.open("d/g").map(drop).map_err(|e| e.kind()), Err(ErrorKind::NotFound));
    disk.create_dir("d/deep/er").unwrap();
    disk.create("d/deep/er/a").unwrap();
    disk.create("top").unwrap();
    assert_eq!(disk.list("d").unwrap(), ["f"]);
    assert_eq!(disk.list("d/deep/er").unwrap(), ["a"]);
    assert_eq!(disk.list("").unwrap(), ["top"]);
    assert_eq!(disk.list("absent").unwrap(), [""; 0]);
}
