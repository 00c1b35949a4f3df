//! The writer of the log: one group at a time, appended, synced, published.

use std::io;
use std::sync::Arc;

use super::entry::FRAME_ALIGN;
use super::group::{GROUP_BYTES_MAX, Group};
use super::segment::files;
use super::segment::frame::{self, FrameHeader, HEADER_BYTES};
use super::segment::mark::Mark;
use super::segment::raw_segment::{self, FRAMES_AT, PAGE_BYTES, RawSegment, SegmentStart};
use super::segment::spare::Spare;
use super::shared::{Segment, Shared};
use super::{LogConfig, LogError, LogKeeper, LogPosition, LogReader, Seq, lock};
use crate::disk::{Disk, is_full};

/// The log, for its one writer.
pub struct Log {
    shared: Arc<Shared>,
    mark: Mark,
    active: Arc<RawSegment>,
    /// How long the active segment's file is.
    capacity: u64,
    /// Where the next frame goes.
    offset: u64,
    next: SegmentStart,
    /// Whether the last frame is not synced yet.
    unsynced: bool,
    frame: Vec<u8>,
    poison: Option<Poison>,
    torn: Option<TornTail>,
}

/// The memory for frames is kept between groups, but for that of a very large one.
const KEPT_FRAME_BYTES: usize = 4 << 20;

/// Where a group was written. Give it to [`Log::publish`] after the sync.
#[must_use = "readers do not see the group before it is published"]
pub struct Appended {
    segment: Arc<RawSegment>,
    entries_at: u64,
    end: LogPosition,
}

impl Appended {
    /// The place right behind the group.
    pub fn end(&self) -> LogPosition {
        self.end
    }
}

/// What was cut off when the log was opened: a group that was being written when the process or machine stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    pub file: String,
    pub offset: u64,
}

/// The failure after which nothing is known about the disk.
struct Poison {
    action: &'static str,
    file: String,
    source: Arc<io::Error>,
}

impl Poison {
    fn error(&self) -> LogError {
        LogError::Poisoned { action: self.action, file: self.file.clone(), source: Arc::clone(&self.source) }
    }
}

impl Log {
    /// Opens the log, or makes one in an empty directory.
    ///
    /// A torn group at the end is cut off. A log that ends before `minimum` (the store's checkpoint) or before its own
    /// mark has lost what was acknowledged and is refused, as is one that is damaged or newer.
    pub fn open(
        disk: Arc<dyn Disk>,
        config: LogConfig,
        minimum: Option<LogPosition>,
    ) -> Result<Self, LogError> {
        super::open::open(disk, config, minimum)
    }

    pub(super) fn resume(
        shared: Arc<Shared>,
        mark: Mark,
        active: Arc<RawSegment>,
        capacity: u64,
        torn: Option<TornTail>,
    ) -> Self {
        let next = active.next_start();
        let offset = active.end().offset;
        let frame = Vec::new();
        Self { shared, mark, active, capacity, offset, next, unsynced: false, frame, poison: None, torn }
    }

    /// The number that the next event must have.
    pub fn next_seq(&self) -> Seq {
        self.next.seq
    }

    /// The place behind the last group that was appended.
    pub fn end(&self) -> LogPosition {
        LogPosition { segment: self.active.id, offset: self.offset, next_seq: self.next.seq }
    }

    /// What was cut off when the log was opened, as far as it is known.
    pub fn torn_tail(&self) -> Option<&TornTail> {
        self.torn.as_ref()
    }

    /// A handle for readers.
    pub fn reader(&self) -> LogReader {
        LogReader::new(Arc::clone(&self.shared))
    }

    /// A handle for the work in the background.
    pub fn keeper(&self) -> LogKeeper {
        LogKeeper::new(Arc::clone(&self.shared))
    }

    /// How many bytes of entries the open segment has room for, in one group.
    pub fn room(&self) -> u64 {
        (self.capacity - self.offset).saturating_sub(frame::span(0) + FRAME_ALIGN)
    }

    /// How many bytes fit into the open segment or the one that is prepared, whichever has more room.
    pub fn room_ahead(&self) -> u64 {
        // While a spare is being made there is none to speak of.
        let spare =
            self.shared.spare.try_lock().map_or(0, |spare| spare.as_ref().map_or(0, |spare| spare.bytes));
        self.room().max(spare.saturating_sub(FRAMES_AT + frame::span(0) + FRAME_ALIGN))
    }

    /// Sees to it that a group of `bytes` can be appended even if the disk has no space left then.
    pub fn reserve(&mut self, bytes: u64) -> Result<(), LogError> {
        self.check_poison()?;
        let span = frame::span(bytes);
        let mut slot = lock::lock(&self.shared.spare);
        let is_enough = self.offset + span <= self.capacity
            || slot.as_ref().is_some_and(|spare| spare.bytes >= FRAMES_AT + span);
        if !is_enough {
            let wanted = self.shared.config.hasty_segment_bytes.max(FRAMES_AT + span);
            *slot = Some(Spare::prepare(&*self.shared.disk, wanted)?);
        }
        Ok(())
    }

    /// Writes a group as one frame, which is not durable yet.
    ///
    /// A full disk ([`LogError::Full`]) changes nothing. Any failed write poisons the log.
    pub fn append(&mut self, group: &Group) -> Result<Appended, LogError> {
        self.check_poison()?;
        if self.unsynced {
            return Err(LogError::NotSynced);
        }
        if let Some(given) = group.first_seq().filter(|first| *first != self.next.seq) {
            return Err(LogError::OutOfSequence { expected: self.next.seq, given });
        }
        if group.byte_count() > GROUP_BYTES_MAX {
            let (bytes, limit) = (group.byte_count() as u64, GROUP_BYTES_MAX as u64);
            return Err(LogError::TooLarge { bytes, limit });
        }
        let span = frame::span(group.byte_count() as u64);
        if self.offset + span > self.capacity {
            self.roll(span)?;
        }
        let count = |count: usize| u32::try_from(count).expect("a group's bytes are limited");
        let header = FrameHeader {
            checksum: 0,
            len: count(group.byte_count()),
            segment: self.active.id,
            number: self.next.frame,
            first_seq: self.next.seq,
            events: count(group.event_count()),
            controls: group.control_count(),
        };
        self.frame.clear();
        let page_end = (self.offset + span).next_multiple_of(PAGE_BYTES).min(self.capacity);
        let frame_bytes = usize::try_from(page_end - self.offset).expect("a group's bytes are limited");
        // A group may be large, and growing by doubling would take three times as much.
        self.frame.reserve_exact(frame_bytes);
        header.put(&mut self.frame, group.bytes());
        self.frame.resize(frame_bytes, 0);
        let written = self.active.file.write_at(&self.frame, self.offset);
        written.map_err(|error| self.fail("write", error))?;
        if self.frame.capacity() > KEPT_FRAME_BYTES {
            self.frame = Vec::new();
        }

        let entries_at = self.offset + HEADER_BYTES as u64;
        self.offset += span;
        self.next.seq.0 += group.event_count() as u64;
        self.next.frame += 1;
        self.unsynced = true;
        Ok(Appended { segment: Arc::clone(&self.active), entries_at, end: self.end() })
    }

    /// Makes the last group durable. A failure poisons the log: whether the group is on disk is then unknown.
    pub fn sync(&mut self) -> Result<(), LogError> {
        self.check_poison()?;
        if !self.unsynced {
            return Ok(());
        }
        self.active.file.sync_data().map_err(|error| self.fail("sync", error))?;
        self.unsynced = false;
        self.mark.set(self.end()).map_err(|error| self.fail("note the end of", error))
    }

    /// Lets readers see a group that was synced. Groups are published in the order they were appended.
    pub fn publish(&self, group: &Group, appended: Appended) -> Result<(), LogError> {
        let Appended { segment, entries_at, end } = appended;
        if self.unsynced && end == self.end() {
            return Err(LogError::NotSynced);
        }
        segment.publish(group, entries_at, end.offset);
        Ok(())
    }

    /// Starts the next segment, with room for a frame of `span` bytes.
    fn roll(&mut self, span: u64) -> Result<(), LogError> {
        let needed = FRAMES_AT + span;
        // Held until the file has its new name: else another spare could take the old one meanwhile.
        let mut slot = lock::lock(&self.shared.spare);
        let spare = match slot.take_if(|spare| spare.bytes >= needed) {
            Some(spare) => spare,
            None => Spare::make_hasty(&*self.shared.disk, &self.shared.config, needed)?,
        };
        let capacity = spare.bytes;
        let segment = start_segment(&*self.shared.disk, spare, self.active.id + 1, self.next);
        drop(slot);
        let segment = segment.map_err(|(action, error)| {
            let file = files::raw(self.active.id + 1);
            if is_full(&error) && action != "sync" {
                LogError::Full { file, bytes: capacity, source: error }
            } else {
                self.poison.insert(Poison { action, file, source: Arc::new(error) }).error()
            }
        })?;
        self.active = Arc::new(segment);
        self.capacity = capacity;
        self.offset = FRAMES_AT;
        self.shared.change_segments(|list| list.push(Segment::Raw(Arc::clone(&self.active))));
        Ok(())
    }

    fn check_poison(&self) -> Result<(), LogError> {
        self.poison.as_ref().map_or(Ok(()), |poison| Err(poison.error()))
    }

    fn fail(&mut self, action: &'static str, error: io::Error) -> LogError {
        let file = self.active.path.clone();
        self.poison.insert(Poison { action, file, source: Arc::new(error) }).error()
    }
}

/// Writes the header of a new segment and gives the file its name. It is durable when this returns.
pub(super) fn start_segment(
    disk: &dyn Disk,
    spare: Spare,
    id: u32,
    start: SegmentStart,
) -> Result<RawSegment, (&'static str, io::Error)> {
    let mut header = raw_segment::header(id, start);
    header.resize(usize::try_from(PAGE_BYTES.min(spare.bytes)).unwrap_or(0), 0);
    let started = spare.file.write_at(&header, 0).and_then(|()| spare.file.sync_data());
    started.and_then(|()| disk.rename(&spare.path, &files::raw(id))).map_err(|error| {
        // Best effort: what is left is removed, or taken as a spare, by an open.
        let _ = disk.remove(&spare.path);
        ("start", error)
    })?;
    disk.sync_dir(files::DIRECTORY).map_err(|error| ("sync", error))?;
    Ok(RawSegment::new(id, spare.file, start))
}
