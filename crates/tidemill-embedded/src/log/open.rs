//! Opens the log: finds its segments, checks that none is missing, and where it ends.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::segment::files::{self, Listing};
use super::segment::format::Format;
use super::segment::frame::{FrameHeader, HEADER_BYTES};
use super::segment::mark::Mark;
use super::segment::raw_segment::{FRAMES_AT, PAGE_BYTES, RawSegment, SegmentStart};
use super::segment::spare::Spare;
use super::shared::{Dictionaries, Segment, Shared};
use super::writer::{Log, TornTail, start_segment};
use super::{LogConfig, LogError, LogPosition, Seq};
use crate::disk::{Disk, DiskFile, read_exact_at};

pub(super) fn open(
    disk: Arc<dyn Disk>,
    config: LogConfig,
    minimum: Option<LogPosition>,
) -> Result<Log, LogError> {
    let config = config.bounded();
    disk.create_dir(files::DIRECTORY).map_err(LogError::io("make", files::DIRECTORY))?;
    let listing = Listing::of(&*disk)?;
    for path in &listing.temporary {
        disk.remove(path).map_err(LogError::io("remove", path))?;
    }
    let format = open_format(&*disk, &listing)?;
    let (mark, marked) = Mark::open(&*disk, listing.has_mark)?;
    // What a killed process renamed must be durable before anything is removed because of it.
    files::sync_directory(&*disk)?;
    let spare = open_spare(&*disk, &config, &listing)?;
    let dictionaries = Dictionaries::new(listing.dictionaries.iter().copied().max().unwrap_or(0));
    let shared = Shared::new(disk, config, dictionaries, spare);

    let mut segments = open_segments(&shared, &listing, format)?;
    if segments.is_empty() {
        let first = SegmentStart { seq: Seq::FIRST, frame: 1 };
        let start = LogPosition { segment: format.first_segment, offset: FRAMES_AT, next_seq: first.seq };
        check_end(start, marked, minimum)?;
        let spare = Spare::make_hasty(&*shared.disk, &config, 0)?;
        let segment = start_segment(&*shared.disk, spare, format.first_segment, first)
            .map_err(|(action, error)| LogError::io(action, &files::raw(format.first_segment))(error))?;
        segments.push(Segment::Raw(Arc::new(segment)));
    }
    check_order(&segments)?;
    let Some(Segment::Raw(active)) = segments.last().cloned() else {
        return Err(LogError::corrupt(files::DIRECTORY, 0, "the open segment is missing"));
    };
    let end = active.end();
    check_end(end, marked, minimum)?;
    shared.change_segments(|list| *list = segments);
    let torn = find_torn_tail(&active)?;
    let capacity = extend(&*active.file, end.offset, &config).map_err(LogError::io("read", &active.path))?;
    // A killed process may have left a group that no sync made durable; from now on it counts as acknowledged.
    active.write_last_again().map_err(LogError::io("write", &active.path))?;
    active.file.sync_data().map_err(LogError::io("sync", &active.path))?;
    mark.set(end).map_err(LogError::io("write", &files::mark()))?;
    Ok(Log::resume(Arc::new(shared), mark, active, capacity, torn))
}

fn open_format(disk: &dyn Disk, listing: &Listing) -> Result<Format, LogError> {
    if listing.has_format {
        return Format::read(disk);
    }
    if !listing.raw.is_empty() || !listing.sealed.is_empty() || listing.has_mark {
        return Err(LogError::corrupt(&files::format(), 0, "it is missing, but there is a log"));
    }
    let format = Format { first_segment: 1 };
    format.write(disk)?;
    Ok(format)
}

fn open_spare(disk: &dyn Disk, config: &LogConfig, listing: &Listing) -> Result<Option<Spare>, LogError> {
    if !listing.has_spare {
        return Ok(None);
    }
    let spare = Spare::reopen(disk)?;
    if spare.bytes >= config.hasty_segment_bytes.max(PAGE_BYTES) {
        return Ok(Some(spare));
    }
    disk.remove(&spare.path).map_err(LogError::io("remove", &spare.path))?;
    Ok(None)
}

/// Opens all segments from the first on; removes what a crash left over.
fn open_segments(shared: &Shared, listing: &Listing, format: Format) -> Result<Vec<Segment>, LogError> {
    let raw: BTreeSet<u32> = listing.raw.iter().copied().collect();
    let sealed: BTreeSet<u32> = listing.sealed.iter().copied().collect();
    let mut dictionaries = super::lock::lock(&shared.keeping);
    let mut segments = Vec::new();
    let mut needless = Vec::new();
    for id in raw.union(&sealed).copied() {
        let forms = (raw.contains(&id), sealed.contains(&id));
        if id < format.first_segment {
            needless.extend(forms.0.then(|| files::raw(id)));
            needless.extend(forms.1.then(|| files::sealed(id)));
            continue;
        }
        let expected = format.first_segment + u32::try_from(segments.len()).unwrap_or(u32::MAX);
        if id != expected {
            return Err(LogError::corrupt(&files::raw(expected), 0, "the segment is missing"));
        }
        let opened = forms.1.then(|| shared.open_sealed(id, &mut dictionaries));
        segments.push(match opened {
            Some(Ok(segment)) => {
                needless.extend(forms.0.then(|| files::raw(id)));
                Segment::Sealed(segment)
            }
            Some(Err(LogError::Corrupt { .. })) if forms.0 => {
                needless.push(files::sealed(id));
                open_raw(shared, id)?
            }
            Some(Err(error)) => return Err(error),
            None => open_raw(shared, id)?,
        });
    }
    if segments.is_empty() && format.first_segment > 1 {
        return Err(LogError::corrupt(&files::raw(format.first_segment), 0, "the segment is missing"));
    }
    drop(dictionaries);
    for path in needless {
        shared.disk.remove(&path).map_err(LogError::io("remove", &path))?;
    }
    Ok(segments)
}

fn open_raw(shared: &Shared, id: u32) -> Result<Segment, LogError> {
    RawSegment::open(&*shared.disk, id).map(|segment| Segment::Raw(Arc::new(segment)))
}

/// Each segment must start with the numbers that the one before ends with.
fn check_order(segments: &[Segment]) -> Result<(), LogError> {
    for pair in segments.windows(2) {
        if pair[0].next_start() != pair[1].start() {
            let (end, start) = (pair[0].next_start().seq, pair[1].start().seq);
            let problem =
                format!("it ends before event {end}, but the next segment starts with event {start}");
            return Err(LogError::corrupt(pair[0].path(), pair[0].raw_end(), problem));
        }
    }
    Ok(())
}

fn check_end(
    found: LogPosition,
    marked: Option<LogPosition>,
    minimum: Option<LogPosition>,
) -> Result<(), LogError> {
    let place = |position: LogPosition| (position.segment, position.offset);
    for (known, known_by) in [(marked, "the log's mark"), (minimum, "the checkpoint")] {
        if let Some(known) = known
            && (place(found) < place(known) || found.next_seq < known.next_seq)
        {
            return Err(LogError::Lost { found, known, known_by });
        }
    }
    Ok(())
}

/// Whether a frame of this segment was begun behind its end.
fn find_torn_tail(active: &RawSegment) -> Result<Option<TornTail>, LogError> {
    let offset = active.end().offset;
    let mut bytes = [0; HEADER_BYTES];
    match read_exact_at(&*active.file, &mut bytes, offset) {
        Ok(()) => {}
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(LogError::io("read", &active.path)(error)),
    }
    let torn = FrameHeader::read(&bytes).is_some_and(|header| header.segment == active.id);
    Ok(torn.then(|| TornTail { file: active.path.clone(), offset }))
}

/// The length of the open segment's file, made longer when it was cut.
fn extend(file: &dyn DiskFile, end: u64, config: &LogConfig) -> std::io::Result<u64> {
    let len = file.len()?;
    let wanted = config.hasty_segment_bytes.max(end).next_multiple_of(PAGE_BYTES);
    if len >= wanted {
        return Ok(len);
    }
    // Without space for it, the next group starts a new segment or is refused.
    match file.allocate(wanted) {
        Ok(()) => Ok(wanted),
        Err(_) => file.len(),
    }
}
