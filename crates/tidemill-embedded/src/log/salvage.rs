//! Copying what is whole of a damaged log.
//!
//! Every group of a segment that was not sealed, and every block of one that was, has a checksum that covers its
//! place. Groups and blocks that pass are copied with their numbers, the others are reported. The copy is a log of
//! sealed segments with the same numbers and an empty open one, so that places in the log mean the same in both. The
//! source is only read.

use std::collections::BTreeSet;
use std::io;

use super::entry::{Entries, FRAME_ALIGN, RawEntry};
use super::segment::dictionary::Dictionary;
use super::segment::files::{self, Listing};
use super::segment::format::Format;
use super::segment::frame_reader::{Expect, FrameReader};
use super::segment::mark::Mark;
use super::segment::raw_segment::{self, FRAMES_AT, SegmentStart};
use super::segment::sealed::{SealedEnd, SealedSegment, SealedWriter, scan_blocks};
use super::segment::spare::Spare;
use super::shared::Dictionaries;
use super::writer::start_segment;
use super::{LogConfig, LogError, LogPosition, Seq};
use crate::codec::{BadBytes, decode_event};
use crate::disk::Disk;

/// A part of the log that is not there any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    pub file: String,
    /// Where it begins in the file, and where what follows begins, if anything does.
    pub from: u64,
    pub to: Option<u64>,
    pub problem: String,
    /// The numbers of the events that were in it, as far as they are known: from the first on, before the end.
    pub first_seq: Seq,
    pub end_seq: Seq,
}

/// What was copied and what was not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Copied {
    pub segments: u64,
    pub events: u64,
    pub controls: u64,
    pub lost: Vec<Lost>,
    /// What was wrong beside the log itself and took nothing along.
    pub mended: Vec<String>,
}

/// Frames of the copy are not told apart by their numbers.
const FRAME: u64 = 1;

/// Copies what is whole. `known` is a place that the log must have reached, if one is known.
pub fn copy_whole(
    from: &dyn Disk,
    to: &dyn Disk,
    config: LogConfig,
    known: Option<LogPosition>,
    mut step: impl FnMut(u64),
) -> Result<Copied, LogError> {
    to.create_dir(files::DIRECTORY).map_err(LogError::io("make", files::DIRECTORY))?;
    let listing = Listing::of(from)?;
    let mut copy =
        Copy { from, to, config: config.bounded(), done: Copied::default(), next: None, raw_end: 0 };
    let ids: BTreeSet<u32> = listing.raw.iter().chain(&listing.sealed).copied().collect();
    let mark = copy.mark(&listing)?;
    let first = match copy.format(&listing)? {
        Some(format) => format.first_segment,
        None => copy.first_of(&listing, &ids)?,
    };
    let reached = [mark, known].into_iter().flatten().map(|position| position.segment).max().unwrap_or(0);
    let last = ids.last().copied().unwrap_or(first).max(reached);
    let mut dictionaries = Dictionaries::new(listing.dictionaries.iter().copied().max().unwrap_or(0));
    for id in first..=last {
        step(u64::from(id - first));
        let has = Has { raw: listing.raw.contains(&id), sealed: listing.sealed.contains(&id) };
        let known_start = copy.next.map_or_else(|| copy.start_of(id, has), Ok)?;
        // What is not known is the lowest that it can be: numbers may have holes, but must not go back.
        let start = SegmentStart { seq: known_start, frame: FRAME };
        let mut writer = SealedWriter::new(to, id, start, &Dictionary::none(), copy.config)?;
        let mut out = Out::new(&mut writer, start.seq);
        copy.segment(id, has, &mut dictionaries, &listing, &mut out)?;
        let (next, raw_end) = (out.next, out.raw_end);
        copy.done.events += out.events;
        copy.done.controls += out.controls;
        copy.done.segments += 1;
        let end = SealedEnd { next: SegmentStart { seq: next, frame: FRAME }, raw_end };
        writer.finish(end)?;
        (copy.next, copy.raw_end) = (Some(next), raw_end);
    }
    copy.finish(first, last, [mark, known].into_iter().flatten())
}

#[derive(Debug, Clone, Copy)]
struct Has {
    raw: bool,
    sealed: bool,
}

struct Copy<'a> {
    from: &'a dyn Disk,
    to: &'a dyn Disk,
    config: LogConfig,
    done: Copied,
    /// The number behind the last event of the segments so far.
    next: Option<Seq>,
    /// Where the last segment so far ends, as it was first written.
    raw_end: u64,
}

/// A segment of the copy in the making.
struct Out<'w, 'd> {
    writer: &'w mut SealedWriter<'d>,
    next: Seq,
    raw_end: u64,
    events: u64,
    controls: u64,
    /// The group that is being read from blocks. It is written when it is known to be whole.
    group: Option<Group>,
    doubt: Doubt,
}

/// A group that comes in several blocks, perhaps.
struct Group {
    offset: u64,
    first_seq: Seq,
    entries: Vec<(Option<Seq>, Vec<u8>)>,
}

/// Whether what comes next may be the rest of a group that began in a block that is lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    None,
    /// The next group, whichever it is.
    Next,
    /// The group at this offset.
    Of(u64),
}

impl<'w, 'd> Out<'w, 'd> {
    fn new(writer: &'w mut SealedWriter<'d>, next: Seq) -> Self {
        Self { writer, next, raw_end: FRAMES_AT, events: 0, controls: 0, group: None, doubt: Doubt::None }
    }

    /// The number behind the last event so far.
    fn reached(&self) -> Seq {
        let ends =
            self.group.iter().flat_map(|group| &group.entries).filter_map(|(seq, _)| seq.map(Seq::next));
        ends.max().map_or(self.next, |end| end.max(self.next))
    }

    /// Takes the entries of a whole group, if they can be read and their numbers go on; what is wrong otherwise.
    fn take_group(
        &mut self,
        bytes: &[u8],
        first: Seq,
        offset: u64,
    ) -> Result<Result<(), &'static str>, LogError> {
        if let Err(problem) = check(bytes, first, self.next) {
            return Ok(Err(problem));
        }
        self.writer.push_frame(offset);
        let mut entries = Entries::new(bytes, first);
        while let Ok(Some(entry)) = entries.next() {
            match entry {
                RawEntry::Event { seq, bytes } => self.push(Some(seq), bytes)?,
                RawEntry::Control(bytes) => self.push(None, bytes)?,
                RawEntry::Frame(_) => {}
            }
        }
        Ok(Ok(()))
    }

    /// Takes the entries of a block, as `take_group` does. After a lost block what may be the rest of a group that began
    /// there is passed over; the answer is the number behind its last event, if it has one.
    fn take_block(
        &mut self,
        bytes: &[u8],
        first: Seq,
    ) -> Result<Result<Option<Seq>, &'static str>, LogError> {
        if let Err(problem) = check(bytes, first, self.reached()) {
            return Ok(Err(problem));
        }
        let mut entries = Entries::new(bytes, first);
        let (mut passed, mut here) = (None, first);
        while let Ok(Some(entry)) = entries.next() {
            let (seq, bytes) = match entry {
                RawEntry::Frame(offset) => {
                    self.begin_group(offset, here)?;
                    continue;
                }
                RawEntry::Event { seq, bytes } => {
                    here = seq.next();
                    (Some(seq), bytes)
                }
                RawEntry::Control(bytes) => (None, bytes),
            };
            match &mut self.group {
                Some(group) => group.entries.push((seq, bytes.to_vec())),
                None => passed = seq.map(Seq::next).or(passed),
            }
        }
        Ok(Ok(passed))
    }

    fn begin_group(&mut self, offset: u64, first_seq: Seq) -> Result<(), LogError> {
        self.doubt = match self.doubt {
            Doubt::Next => Doubt::Of(offset),
            Doubt::Of(doubtful) if doubtful == offset => self.doubt,
            _ => Doubt::None,
        };
        if self.doubt == Doubt::None && self.group.as_ref().is_none_or(|group| group.offset != offset) {
            self.end_group()?;
            self.group = Some(Group { offset, first_seq, entries: Vec::new() });
        }
        Ok(())
    }

    /// A block is lost, and with it perhaps the end of the group before and the beginning of the one behind. Gives the
    /// number of the first event that goes with it.
    fn lose_block(&mut self, first: Seq) -> Seq {
        self.doubt = Doubt::Next;
        self.group.take().map_or(first, |group| group.first_seq.min(first))
    }

    /// Writes the group that was read, which is whole.
    fn end_group(&mut self) -> Result<(), LogError> {
        let Some(group) = self.group.take() else { return Ok(()) };
        self.writer.push_frame(group.offset);
        self.raw_end = self.raw_end.max(group.offset + FRAME_ALIGN);
        for (seq, bytes) in &group.entries {
            self.push(*seq, bytes)?;
        }
        Ok(())
    }

    fn push(&mut self, seq: Option<Seq>, bytes: &[u8]) -> Result<(), LogError> {
        let Some(seq) = seq else {
            self.controls += 1;
            return self.writer.push_control(bytes);
        };
        self.events += 1;
        self.next = self.next.max(seq.next());
        self.writer.push_event(seq, bytes)
    }
}

/// Whether all entries can be read and the numbers of events go on from `next`.
fn check(bytes: &[u8], first: Seq, mut next: Seq) -> Result<(), &'static str> {
    let mut entries = Entries::new(bytes, first);
    while let Some(entry) = entries.next().map_err(|BadBytes(problem)| problem)? {
        if let RawEntry::Event { seq, bytes } = entry {
            if seq < next {
                return Err("the numbers of its events go back");
            }
            next = seq.next();
            decode_event(seq, bytes).map_err(|BadBytes(problem)| problem)?;
        }
    }
    Ok(())
}

impl Copy<'_> {
    fn format(&mut self, listing: &Listing) -> Result<Option<Format>, LogError> {
        if !listing.has_format {
            self.done.mended.push("log/FORMAT was missing and is made again".to_owned());
            return Ok(None);
        }
        match Format::read(self.from) {
            Ok(format) => Ok(Some(format)),
            Err(LogError::Corrupt { .. }) => {
                self.done.mended.push("log/FORMAT was damaged and is made again".to_owned());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// The first segment that is there. Without the format nobody knows whether those before it were dropped in order.
    fn first_of(&mut self, listing: &Listing, ids: &BTreeSet<u32>) -> Result<u32, LogError> {
        let first = ids.first().copied().unwrap_or(1);
        if first > 1 {
            let has = Has { raw: listing.raw.contains(&first), sealed: listing.sealed.contains(&first) };
            let problem =
                format!("no segment before {first} is there, unless they were dropped when they were old");
            let start = self.start_of(first, has)?;
            self.lose(files::raw(1), (0, None), problem, (Seq::FIRST, start));
        }
        Ok(first)
    }

    fn mark(&mut self, listing: &Listing) -> Result<Option<LogPosition>, LogError> {
        if !listing.has_mark {
            return Ok(None);
        }
        Mark::open(self.from, true).map(|(_, position)| position)
    }

    fn lose(
        &mut self,
        file: String,
        bytes: (u64, Option<u64>),
        problem: impl Into<String>,
        seqs: (Seq, Seq),
    ) {
        let (first_seq, end_seq) = (seqs.0, seqs.1.max(seqs.0));
        let problem = problem.into();
        self.done.lost.push(Lost { file, from: bytes.0, to: bytes.1, problem, first_seq, end_seq });
    }

    /// The number that a segment starts with, by what it says itself; the first of all if it does not.
    fn start_of(&self, id: u32, has: Has) -> Result<Seq, LogError> {
        Ok(self.told_start(id, has)?.map_or(Seq::FIRST, |start| start.seq))
    }

    fn told_start(&self, id: u32, has: Has) -> Result<Option<SegmentStart>, LogError> {
        if has.sealed {
            match SealedSegment::open(self.from, id, 0, |_| Ok(Dictionary::none().into())) {
                Ok(sealed) => return Ok(Some(sealed.footer().start)),
                Err(LogError::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        if !has.raw {
            return Ok(None);
        }
        match raw_segment::start_of(self.from, id) {
            Ok(start) => Ok(Some(start)),
            Err(LogError::Corrupt { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn segment(
        &mut self,
        id: u32,
        has: Has,
        dictionaries: &mut Dictionaries,
        listing: &Listing,
        out: &mut Out<'_, '_>,
    ) -> Result<(), LogError> {
        // A segment that is there in both forms was just sealed; the first form is removed only when the second is whole.
        let mut number = None;
        if has.raw {
            number = self.raw(id, out)?;
        } else if has.sealed {
            self.sealed(id, dictionaries, listing, out)?;
        } else {
            let seqs = (out.next, out.next);
            self.lose(files::raw(id), (0, None), "the segment is missing", seqs);
        }
        // What came before the next segment starts and was not found is lost with the end of this one.
        let next = Has { raw: listing.raw.contains(&(id + 1)), sealed: listing.sealed.contains(&(id + 1)) };
        let is_short =
            |start: &SegmentStart| start.seq > out.next || number.is_some_and(|number| start.frame > number);
        if let Some(SegmentStart { seq: start, .. }) = self.told_start(id + 1, next)?.filter(is_short) {
            let path = if has.sealed && !has.raw { files::sealed(id) } else { files::raw(id) };
            match self.done.lost.last_mut().filter(|lost| lost.file == path && lost.to.is_none()) {
                Some(lost) => lost.end_seq = start,
                None if has.raw || !has.sealed => {
                    let seqs = (out.next, start);
                    self.lose(path, (out.raw_end, None), "its end is missing", seqs);
                }
                // The last events of a sealed segment may have expired.
                None => {}
            }
            out.next = out.next.max(start);
        }
        Ok(())
    }

    /// Gives the number that the next group would have, if it is known.
    fn raw(&mut self, id: u32, out: &mut Out<'_, '_>) -> Result<Option<u64>, LogError> {
        let path = files::raw(id);
        let read = |error| LogError::io("read", &files::raw(id))(error);
        let file = self.from.open(&path).map_err(LogError::io("open", &path))?;
        let end = file.len().map_err(read)?;
        let mut number = match raw_segment::start_of(self.from, id) {
            Ok(start) => Some(start.frame),
            Err(LogError::Corrupt { problem, .. }) => {
                self.done.mended.push(format!("{path}: {problem}; its groups tell where they belong"));
                None
            }
            Err(error) => return Err(error),
        };
        let mut frames = FrameReader::new(&*file, id, FRAMES_AT, end, Expect { number: None, seq: out.next });
        loop {
            let behind = frames.offset();
            let expected = out.next;
            let Some(frame) = frames.next_whole().map_err(read)? else { return Ok(number) };
            let (offset, header) = (frame.offset, frame.header);
            let skipped = number.is_some_and(|number| header.number != number) || offset > behind;
            if skipped {
                let (bytes, seqs) = ((behind, Some(offset)), (expected, header.first_seq));
                self.lose(path.clone(), bytes, "there is no whole group here", seqs);
            }
            number = Some(header.number + 1);
            out.raw_end = offset + header.span();
            if let Err(problem) = out.take_group(frame.entries, header.first_seq, offset)? {
                let end_seq = Seq(header.first_seq.0 + u64::from(header.events));
                self.lose(path.clone(), (offset, Some(out.raw_end)), problem, (header.first_seq, end_seq));
            }
            out.next = out.next.max(Seq(header.first_seq.0 + u64::from(header.events)));
        }
    }

    fn sealed(
        &mut self,
        id: u32,
        dictionaries: &mut Dictionaries,
        listing: &Listing,
        out: &mut Out<'_, '_>,
    ) -> Result<(), LogError> {
        let disk = self.from;
        let opened = SealedSegment::open(disk, id, 0, |dictionary| dictionaries.get(disk, dictionary));
        let sealed = match opened {
            Ok(sealed) => sealed,
            Err(LogError::Corrupt { file, problem, .. }) => {
                return self.without_index(id, (file, problem), dictionaries, listing, out);
            }
            Err(LogError::Io { file, source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return self.without_index(id, (file, "it is missing".into()), dictionaries, listing, out);
            }
            Err(error) => return Err(error),
        };
        for block in 0..sealed.block_count() {
            let (at, first) = (sealed.offset_of(block), sealed.seq_at(block));
            let taken = match sealed.read_block(block) {
                Ok(bytes) => out.take_block(&bytes, first)?.map_err(str::to_owned),
                Err(LogError::Corrupt { problem, .. }) => Err(problem),
                Err(LogError::Io { source, .. }) if source.kind() == io::ErrorKind::UnexpectedEof => {
                    Err("it ends too early".to_owned())
                }
                Err(error) => return Err(error),
            };
            match taken {
                Ok(None) => {}
                // The lost block may have held the beginning of this.
                Ok(Some(passed)) => {
                    if let Some(lost) = self.done.lost.last_mut() {
                        lost.end_seq = lost.end_seq.max(passed);
                    }
                }
                Err(problem) => {
                    let is_last = block + 1 == sealed.block_count();
                    let end = if is_last { sealed.footer().end.seq } else { sealed.seq_at(block + 1) };
                    let bytes = (at, Some(sealed.offset_of(block + 1)));
                    let seqs = (out.lose_block(first), end);
                    self.lose(sealed.path().to_owned(), bytes, problem, seqs);
                    out.next = out.next.max(end);
                }
            }
        }
        out.end_group()?;
        out.next = out.next.max(sealed.footer().end.seq);
        out.raw_end = sealed.footer().raw_end;
        Ok(())
    }

    /// Goes through the blocks of a sealed segment one after the other, up to the first that is not whole.
    fn without_index(
        &mut self,
        id: u32,
        (file, problem): (String, String),
        dictionaries: &mut Dictionaries,
        listing: &Listing,
        out: &mut Out<'_, '_>,
    ) -> Result<(), LogError> {
        let path = files::sealed(id);
        let mut known = vec![dictionaries.get(self.from, 0)?];
        for dictionary in listing.dictionaries.iter().rev() {
            match dictionaries.get(self.from, *dictionary) {
                Ok(dictionary) => known.insert(0, dictionary),
                Err(LogError::Corrupt { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let read = |error| LogError::io("read", &files::sealed(id))(error);
        let scan = scan_blocks(self.from, id, &known, &mut |bytes| {
            let first = out.reached();
            Ok(out.take_block(bytes, first)?.is_ok())
        })?;
        let length = self.from.open(&path).and_then(|file| file.len()).map_err(read)?;
        if scan.is_whole {
            out.end_group()?;
            self.done
                .mended
                .push(format!("{file}: {problem}; all blocks of {path} are whole and were copied"));
        } else {
            let reached = out.reached();
            let seqs = (out.lose_block(reached), reached);
            out.next = reached;
            let problem = format!("{file}: {problem}; no block can be read from here on");
            self.lose(path, (scan.end, Some(length)), problem, seqs);
            if let Some(lost) = self.done.lost.last_mut() {
                lost.to = None;
            }
        }
        Ok(())
    }

    /// Ends the copy with an empty segment behind all that the log is known to have had.
    fn finish(
        mut self,
        first: u32,
        last: u32,
        known: impl Iterator<Item = LogPosition>,
    ) -> Result<Copied, LogError> {
        let mut seq = self.next.unwrap_or(Seq::FIRST);
        let (mut most, mut reached) = (seq, (last, self.raw_end));
        for position in known {
            most = most.max(position.next_seq);
            reached = reached.max((position.segment, position.offset));
        }
        if most > seq || reached > (last, self.raw_end) {
            let from = self.raw_end;
            let path = files::raw(last);
            match self.done.lost.last_mut().filter(|lost| lost.file == path && lost.to.is_none()) {
                Some(known) => known.end_seq = most,
                None => self.lose(path, (from, None), "its end is missing", (seq, most)),
            }
            seq = most;
        }
        let spare = Spare::make_hasty(self.to, &self.config, 0)?;
        let id = last + 1;
        // The last sealed segment must end where this one starts.
        let start = SegmentStart { seq: self.next.unwrap_or(Seq::FIRST), frame: FRAME };
        if start.seq < seq {
            self.fill_up(id, start, seq)?;
            let start = SegmentStart { seq, frame: FRAME };
            start_segment(self.to, spare, id + 1, start)
        } else {
            start_segment(self.to, spare, id, start)
        }
        .map_err(|(action, error)| LogError::io(action, &files::raw(id))(error))?;
        Format { first_segment: first }.write(self.to)?;
        Ok(self.done)
    }

    /// A segment without entries, for numbers that were given out and are lost.
    fn fill_up(&self, id: u32, start: SegmentStart, end: Seq) -> Result<(), LogError> {
        let writer = SealedWriter::new(self.to, id, start, &Dictionary::none(), self.config)?;
        writer.finish(SealedEnd { next: SegmentStart { seq: end, frame: FRAME }, raw_end: FRAMES_AT })
    }
}
