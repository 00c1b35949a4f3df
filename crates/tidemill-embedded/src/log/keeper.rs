//! Work in the background: preparing files, sealing, and what retention needs. Neither appends nor reads wait for it.

use std::sync::Arc;

use tidemill_model::Json;

use super::entry::{Entries, RawEntry};
use super::segment::dictionary::{Dictionary, Samples};
use super::segment::files;
use super::segment::format::Format;
use super::segment::raw_segment::{RawSegment, SegmentStart};
use super::segment::sealed::{SealedEnd, SealedSegment, SealedWriter};
use super::segment::spare::Spare;
use super::shared::{Dictionaries, Segment, Shared};
use super::{LogError, StoredEvent, lock, verify};
use crate::codec::{BadBytes, decode_event, encode_event};

/// Seals, rewrites and drops segments. Cheap to clone; one such piece of work is done at a time.
#[derive(Clone)]
pub struct LogKeeper {
    shared: Arc<Shared>,
}

/// What a rewrite did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewritten {
    pub dropped_events: u64,
    pub hollowed_events: u64,
    pub dropped_controls: u64,
    pub bytes_before: u64,
    pub bytes_after: u64,
}

/// What becomes of an event when its segment is written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    Keep,
    /// Its properties go; it stays as a link in its entity's history.
    Hollow,
    Drop,
}

impl From<bool> for Fate {
    fn from(keep: bool) -> Self {
        if keep { Self::Keep } else { Self::Drop }
    }
}

impl LogKeeper {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Makes a file for the next segment, if there is none; `true` when it did. Call it at start and after each roll,
    /// off the writer's thread.
    pub fn prepare_spare(&self) -> Result<bool, LogError> {
        let mut spare = lock::lock(&self.shared.spare);
        if spare.is_some() {
            return Ok(false);
        }
        *spare = Some(Spare::prepare(&*self.shared.disk, self.shared.config.segment_bytes)?);
        Ok(true)
    }

    /// Seals the oldest full segment; `false` when none waits.
    pub fn seal_next(&self) -> Result<bool, LogError> {
        let mut dictionaries = lock::lock(&self.shared.keeping);
        let Some((raw, next)) = self.shared.segments().next_to_seal() else { return Ok(false) };
        let id = raw.id;
        let dictionary = self.dictionary_for(&raw, &mut dictionaries)?;
        self.write_sealed(&raw, next, &dictionary)?;
        self.replace_by_sealed(id, &mut dictionaries)?;
        self.recycle(raw)?;
        Ok(true)
    }

    /// Writes a sealed segment again without the entries that are not to be kept. Numbers stay as they are.
    ///
    /// `keep` and `keep_control` may read the log but not call the keeper, which is busy.
    pub fn rewrite<F: Into<Fate>>(
        &self,
        segment: u32,
        mut keep: impl FnMut(&StoredEvent) -> F,
        mut keep_control: impl FnMut(&[u8]) -> bool,
    ) -> Result<Rewritten, LogError> {
        let mut dictionaries = lock::lock(&self.shared.keeping);
        let old = self.sealed(segment)?;
        let newest = dictionaries.newest();
        let dictionary = dictionaries.get(&*self.shared.disk, newest)?;
        let footer = *old.footer();
        let disk = &*self.shared.disk;
        let mut writer = SealedWriter::new(disk, segment, footer.start, &dictionary, self.shared.config)?;
        let mut result = Rewritten {
            dropped_events: 0,
            hollowed_events: 0,
            dropped_controls: 0,
            bytes_before: old.bytes(),
            bytes_after: old.bytes(),
        };
        let mut hollow = Vec::new();
        for block in 0..old.block_count() {
            let bytes = old.read_block(block)?;
            let damaged = |BadBytes(problem)| old.damaged(old.offset_of(block), problem);
            let mut entries = Entries::new(&bytes, old.seq_at(block));
            while let Some(entry) = entries.next().map_err(damaged)? {
                match entry {
                    RawEntry::Event { seq, bytes } => {
                        let mut stored = decode_event(seq, bytes).map_err(damaged)?;
                        match keep(&stored).into() {
                            Fate::Keep => writer.push_event(seq, bytes)?,
                            Fate::Hollow => {
                                stored.event.properties = Json::empty_object();
                                hollow.clear();
                                encode_event(&mut hollow, seq, &stored.event, &stored.links);
                                writer.push_event(seq, &hollow)?;
                                result.hollowed_events += 1;
                            }
                            Fate::Drop => result.dropped_events += 1,
                        }
                    }
                    RawEntry::Control(bytes) if keep_control(bytes) => writer.push_control(bytes)?,
                    RawEntry::Control(_) => result.dropped_controls += 1,
                    RawEntry::Frame(offset) => writer.push_frame(offset),
                }
            }
        }
        if result.dropped_events + result.hollowed_events + result.dropped_controls > 0 {
            writer.finish(SealedEnd { next: footer.end, raw_end: footer.raw_end })?;
            result.bytes_after = self.replace_by_sealed(segment, &mut dictionaries)?;
        }
        Ok(result)
    }

    /// Drops all entries of a sealed segment. Its file goes as soon as no older segment is left.
    pub fn drop_segment(&self, segment: u32) -> Result<(), LogError> {
        let mut dictionaries = lock::lock(&self.shared.keeping);
        let old = self.sealed(segment)?;
        let is_first = self.shared.segments().iter().next().is_some_and(|first| first.id() == segment);
        if !is_first {
            let footer = *old.footer();
            let (disk, config) = (&*self.shared.disk, self.shared.config);
            let writer = SealedWriter::new(disk, segment, footer.start, &Dictionary::none(), config)?;
            writer.finish(SealedEnd { next: footer.end, raw_end: footer.raw_end })?;
            self.replace_by_sealed(segment, &mut dictionaries)?;
            return Ok(());
        }
        self.forget_first()
    }

    /// Checks every byte of the log; a line of text for each thing that is wrong.
    ///
    /// Only what keeps it from checking at all is an error.
    pub fn verify(&self) -> Result<Vec<String>, LogError> {
        verify::verify(&self.shared)
    }

    /// Removes the file of the first segment and of the empty ones behind it.
    fn forget_first(&self) -> Result<(), LogError> {
        let segments = self.shared.segments();
        let is_empty = |segment: &&Segment| match segment {
            Segment::Raw(_) => false,
            Segment::Sealed(sealed) => sealed.footer().events + sealed.footer().controls == 0,
        };
        let rest = segments.iter().skip(1).take_while(is_empty);
        let gone: Vec<u32> = segments.iter().take(1).chain(rest).map(Segment::id).collect();
        let Some(last) = gone.last() else { return Ok(()) };
        // Until this is durable the segments must be there; afterwards an open removes what is left of them.
        let format = Format { first_segment: last + 1 };
        format.write(&*self.shared.disk)?;
        self.shared.change_segments(|list| list.retain(|segment| segment.id() > *last));
        for id in gone {
            let path = files::sealed(id);
            self.shared.disk.remove(&path).map_err(LogError::io("remove", &path))?;
        }
        Ok(())
    }

    fn sealed(&self, segment: u32) -> Result<Arc<SealedSegment>, LogError> {
        match self.shared.segments().get(segment) {
            Some(Segment::Sealed(sealed)) => Ok(Arc::clone(sealed)),
            _ => Err(LogError::NoSuchSegment { segment }),
        }
    }

    /// The dictionary to seal with, trained from this segment if there is none yet.
    fn dictionary_for(
        &self,
        raw: &RawSegment,
        dictionaries: &mut Dictionaries,
    ) -> Result<Arc<Dictionary>, LogError> {
        let wanted = self.shared.config.dictionary_bytes;
        if dictionaries.newest() == 0 && wanted > 0 {
            let mut samples = Samples::new(wanted);
            let mut enough = false;
            for_each_entry(raw, |entry| {
                if let RawEntry::Event { bytes, .. } = entry {
                    enough = enough || !samples.push(bytes);
                }
                Ok(())
            })?;
            if let Some(dictionary) = Dictionary::train(raw.id, &samples, wanted) {
                dictionary.write(&*self.shared.disk)?;
                dictionaries.add(dictionary);
            }
        }
        dictionaries.get(&*self.shared.disk, dictionaries.newest())
    }

    fn write_sealed(
        &self,
        raw: &RawSegment,
        next: SegmentStart,
        dictionary: &Dictionary,
    ) -> Result<(), LogError> {
        let disk = &*self.shared.disk;
        let mut writer = SealedWriter::new(disk, raw.id, raw.start, dictionary, self.shared.config)?;
        for_each_entry(raw, |entry| match entry {
            RawEntry::Event { seq, bytes } => writer.push_event(seq, bytes),
            RawEntry::Control(bytes) => writer.push_control(bytes),
            RawEntry::Frame(offset) => {
                writer.push_frame(offset);
                Ok(())
            }
        })?;
        writer.finish(SealedEnd { next, raw_end: raw.end().offset })
    }

    /// Lets readers use the file that was just written; tells its length.
    fn replace_by_sealed(&self, id: u32, dictionaries: &mut Dictionaries) -> Result<u64, LogError> {
        let sealed = self.shared.open_sealed(id, dictionaries)?;
        let bytes = sealed.bytes();
        self.shared.change_segments(|list| {
            if let Some(segment) = list.iter_mut().find(|segment| segment.id() == id) {
                *segment = Segment::Sealed(sealed);
            }
        });
        Ok(bytes)
    }

    /// Makes the file of a segment that was sealed the next spare, or removes it.
    fn recycle(&self, raw: Arc<RawSegment>) -> Result<(), LogError> {
        let path = raw.path.clone();
        let mut slot = lock::lock(&self.shared.spare);
        // A reader that still holds the segment must not see it overwritten; removing does not disturb it.
        if slot.is_none()
            && let Some(raw) = Arc::into_inner(raw)
            && raw.file.len().is_ok_and(|bytes| bytes == self.shared.config.segment_bytes)
        {
            let spare = files::spare();
            self.shared.disk.rename(&path, &spare).map_err(LogError::io("rename", &path))?;
            let bytes = self.shared.config.segment_bytes;
            *slot = Some(Spare { path: spare, file: raw.file, bytes });
            return Ok(());
        }
        self.shared.disk.remove(&path).map_err(LogError::io("remove", &path))
    }
}

/// Visits the published entries of a segment, and where each group starts.
pub(super) fn for_each_entry(
    raw: &RawSegment,
    mut visit: impl FnMut(RawEntry<'_>) -> Result<(), LogError>,
) -> Result<(), LogError> {
    let end = raw.end();
    let mut frames = raw.frames(0, raw.start.seq);
    while frames.offset() < end.offset {
        let offset = frames.offset();
        let damaged = |problem| LogError::corrupt(&raw.path, offset, problem);
        let frame = frames.next().map_err(LogError::io("read", &raw.path))?;
        let frame = frame.ok_or_else(|| damaged("there is no whole group here"))?;
        visit(RawEntry::Frame(frame.offset))?;
        let mut entries = Entries::new(frame.entries, frame.header.first_seq);
        while let Some(entry) = entries.next().map_err(|BadBytes(problem)| damaged(problem))? {
            visit(entry)?;
        }
    }
    Ok(())
}
