//! Sealed segments are rewritten and dropped while readers go on.

use tidemill_embedded::log::{
    LogConfig, LogError, LogPosition, Order, SegmentKind, Seq, StoredEvent, TimelineQuery, Window,
};
use tidemill_model::TenantId;

use super::mem_disk::MemDisk;
use super::support::{Bench, Known, Random, as_entries, random_group, replay, small};

fn random_log(disk: &MemDisk, seed: u64) -> Bench {
    let mut random = Random::new(seed);
    let mut bench = Bench::open(disk, small());
    while bench.reader.segments().len() < 6 {
        let group = random_group(&mut random, bench.log.next_seq().0);
        bench.write(as_entries(&group)).unwrap();
    }
    bench.seal_all();
    bench
}

#[test]
fn a_rewrite_keeps_what_it_is_told_to_and_all_numbers() {
    for seed in 0..10 {
        let disk = MemDisk::new();
        let mut bench = random_log(&disk, seed);
        let before = bench.reader.segments();
        let keep = |seq: Seq| seq.0 % 3 != 1 && !(40..60).contains(&seq.0);
        let keep_control = |bytes: &[u8]| bytes.len().is_multiple_of(2);
        for segment in before.iter().filter(|segment| segment.kind == SegmentKind::Sealed) {
            let reader = bench.reader.clone();
            let done = bench
                .keeper
                .rewrite(segment.id, |stored: &StoredEvent| keep(stored.seq), keep_control)
                .unwrap();
            assert!(done.dropped_events > 0 && done.bytes_after < done.bytes_before, "{done:?}");
            assert_eq!(reader.segments()[0].first_seq, Seq(1));
        }
        let open = before.last().unwrap().first_seq;
        let mut in_open = false;
        bench.known.retain(|known| match known {
            Known::Event(stored) => {
                in_open |= stored.seq >= open;
                in_open || keep(stored.seq)
            }
            // The segment of a control entry is not known here; they are compared below.
            Known::Control(_) => false,
        });
        let found = replay(&bench.reader, LogPosition::START).unwrap();
        let found: Vec<Known> = found.into_iter().filter(|known| matches!(known, Known::Event(_))).collect();
        assert_eq!(found, bench.known, "seed {seed}");
        assert_eq!(bench.keeper.verify().unwrap(), Vec::<String>::new());
        let reopened = Bench::open(&disk, small());
        assert_eq!(reopened.keeper.verify().unwrap(), Vec::<String>::new());
        for (old, new) in before.iter().zip(reopened.reader.segments()) {
            assert_eq!((old.id, old.first_seq, old.end_seq), (new.id, new.first_seq, new.end_seq));
        }
        for seq in 1..open.0 {
            let found = reopened.reader.read(Seq(seq)).unwrap();
            assert_eq!(found.map(|stored| stored.seq), keep(Seq(seq)).then_some(Seq(seq)));
        }
        // What is left can be replayed from any old place.
        for end in &bench.ends {
            let tail = replay(&reopened.reader, *end).unwrap();
            let first = tail.iter().find_map(|known| match known {
                Known::Event(stored) => Some(stored.seq),
                Known::Control(_) => None,
            });
            let expected = (end.next_seq.0..open.0).map(Seq).find(|seq| keep(*seq));
            assert_eq!(first, expected.or(first.filter(|seq| *seq >= open)), "seed {seed} from {end}");
        }
        let all = TimelineQuery {
            tenant: TenantId::trusted("acme"),
            app: None,
            event_type: None,
            window: Window::all(Order::Ascending, usize::MAX),
        };
        let mut acme: Vec<_> =
            bench.events().into_iter().filter(|s| s.event.tenant.as_str() == "acme").collect();
        acme.sort_by_key(|stored| stored.event.position());
        assert_eq!(reopened.reader.timeline(&all).unwrap().events, acme);
    }
}

#[test]
fn dropped_segments_are_gone_and_the_first_ones_leave_no_file() {
    let disk = MemDisk::new();
    let mut bench = random_log(&disk, 20);
    let segments = bench.reader.segments();
    assert!(matches!(
        bench.keeper.drop_segment(segments.last().unwrap().id),
        Err(LogError::NoSuchSegment { .. })
    ));
    // From the middle: the file stays as a proof that nothing was lost.
    bench.keeper.drop_segment(2).unwrap();
    assert_eq!(bench.reader.segments()[1].events, 0);
    assert_eq!(bench.reader.segments().len(), segments.len());
    assert!(Bench::try_open(&disk.after_kill(), small()).is_ok());
    // From the beginning: the empty one behind it goes as well.
    bench.keeper.drop_segment(1).unwrap();
    assert_eq!(bench.reader.segments()[0].id, 3);
    assert!(!disk.names().iter().any(|name| name.contains("0000000001.s") || name.contains("0000000002.s")));
    let first = segments[2].first_seq;
    let index =
        bench.known.iter().position(|known| matches!(known, Known::Event(s) if s.seq >= first)).unwrap();
    let left: Vec<StoredEvent> = super::support::events(&bench.known[index..]);
    for reopened in [false, true] {
        if reopened {
            bench = Bench { known: bench.known, ends: bench.ends, ..Bench::open(&disk, small()) };
        }
        assert_eq!(bench.reader.read(Seq(1)).unwrap(), None);
        assert_eq!(bench.reader.read_from(Seq(1), usize::MAX).unwrap(), left);
        let found = replay(&bench.reader, LogPosition::START).unwrap();
        assert_eq!(super::support::events(&found), left);
        assert_eq!(bench.keeper.verify().unwrap(), Vec::<String>::new());
    }
    // All of it: the log still knows its next number.
    let next = bench.log.next_seq();
    for segment in bench.reader.segments() {
        if segment.kind == SegmentKind::Sealed {
            bench.keeper.drop_segment(segment.id).unwrap();
        }
    }
    assert_eq!(bench.reader.segments().len(), 1);
    assert_eq!(Bench::open(&disk, small()).log.next_seq(), next);
}

#[test]
fn sealing_compresses_with_one_dictionary_and_uses_files_again() {
    let disk = MemDisk::new();
    let config = LogConfig { segment_bytes: 256 << 10, hasty_segment_bytes: 256 << 10, ..small() };
    let mut bench = Bench::open(&disk, config);
    let mut sealed = 0;
    while sealed < 5 {
        let next = bench.log.next_seq().0;
        bench.write_events((next..next + 50).map(super::support::event).collect()).unwrap();
        if bench.keeper.seal_next().unwrap() {
            sealed += 1;
            assert!(disk.names().contains(&"log/spare".to_owned()), "the file is the next spare");
            assert!(!bench.keeper.prepare_spare().unwrap());
        }
    }
    let dictionaries: Vec<_> = disk.names().into_iter().filter(|name| name.contains(".dict")).collect();
    assert_eq!(dictionaries, ["log/0000000001.dict"]);
    for segment in bench.reader.segments().iter().filter(|segment| segment.kind == SegmentKind::Sealed) {
        assert!(segment.bytes < 80 << 10, "{segment:?}");
    }
    bench.assert_whole();
    Bench { known: bench.known, ..Bench::open(&disk, config) }.assert_whole();
}
