//! What writer, readers and keeper of the log have in common.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, RwLock};

use super::index::postings::Extent;
use super::segment::block_cache::BlockCache;
use super::segment::dictionary::Dictionary;
use super::segment::raw_segment::{RawSegment, SegmentStart};
use super::segment::sealed::SealedSegment;
use super::segment::spare::Spare;
use super::{LogConfig, LogError, Seq, lock};
use crate::disk::Disk;

pub(super) struct Shared {
    pub(super) disk: Arc<dyn Disk>,
    pub(super) config: LogConfig,
    pub(super) cache: BlockCache,
    segments: RwLock<Arc<Segments>>,
    /// A file for the next segment.
    pub(super) spare: Mutex<Option<Spare>>,
    /// Held while segments are sealed, rewritten or dropped, one at a time.
    pub(super) keeping: Mutex<Dictionaries>,
    generations: AtomicU64,
}

impl Shared {
    pub(super) fn new(
        disk: Arc<dyn Disk>,
        config: LogConfig,
        dictionaries: Dictionaries,
        spare: Option<Spare>,
    ) -> Self {
        Self {
            disk,
            config,
            cache: BlockCache::new(config.cache_bytes, config.block_bytes),
            segments: RwLock::default(),
            spare: Mutex::new(spare),
            keeping: Mutex::new(dictionaries),
            generations: AtomicU64::new(0),
        }
    }

    /// The segments as they are now.
    pub(super) fn segments(&self) -> Arc<Segments> {
        Arc::clone(&lock::read(&self.segments))
    }

    /// Changes the list of segments. Readers that hold the old list go on with it.
    pub(super) fn change_segments(&self, change: impl FnOnce(&mut Vec<Segment>)) {
        let mut segments = lock::write(&self.segments);
        let mut list = segments.0.clone();
        change(&mut list);
        *segments = Arc::new(Segments(list));
    }

    /// Opens a sealed segment.
    pub(super) fn open_sealed(
        &self,
        id: u32,
        dictionaries: &mut Dictionaries,
    ) -> Result<Arc<SealedSegment>, LogError> {
        let generation = self.generations.fetch_add(1, Ordering::Relaxed);
        let disk = &*self.disk;
        SealedSegment::open(disk, id, generation, |id| dictionaries.get(disk, id)).map(Arc::new)
    }
}

/// All segments, by number.
#[derive(Default)]
pub(super) struct Segments(Vec<Segment>);

impl Segments {
    pub(super) fn iter(&self) -> std::slice::Iter<'_, Segment> {
        self.0.iter()
    }

    /// The segment that holds the event `seq` if any does.
    pub(super) fn of(&self, seq: Seq) -> Option<&Segment> {
        let after = self.0.partition_point(|segment| segment.start().seq <= seq);
        self.0.get(after.checked_sub(1)?)
    }

    pub(super) fn get(&self, id: u32) -> Option<&Segment> {
        let place = self.0.binary_search_by_key(&id, Segment::id).ok()?;
        self.0.get(place)
    }

    /// The first segment that waits to be sealed, and the numbers the one after it starts with.
    pub(super) fn next_to_seal(&self) -> Option<(Arc<RawSegment>, SegmentStart)> {
        self.0.windows(2).find_map(|pair| match pair {
            [Segment::Raw(raw), next] if raw.next_start() == next.start() => {
                Some((Arc::clone(raw), next.start()))
            }
            _ => None,
        })
    }

    pub(super) fn last(&self) -> Option<&Segment> {
        self.0.last()
    }
}

/// A segment in either form.
#[derive(Clone)]
pub(super) enum Segment {
    Raw(Arc<RawSegment>),
    Sealed(Arc<SealedSegment>),
}

impl Segment {
    pub(super) fn id(&self) -> u32 {
        match self {
            Self::Raw(raw) => raw.id,
            Self::Sealed(sealed) => sealed.id(),
        }
    }

    pub(super) fn path(&self) -> &str {
        match self {
            Self::Raw(raw) => &raw.path,
            Self::Sealed(sealed) => sealed.path(),
        }
    }

    pub(super) fn start(&self) -> SegmentStart {
        match self {
            Self::Raw(raw) => raw.start,
            Self::Sealed(sealed) => sealed.footer().start,
        }
    }

    /// The numbers that the segment after this one starts with.
    pub(super) fn next_start(&self) -> SegmentStart {
        match self {
            Self::Raw(raw) => raw.next_start(),
            Self::Sealed(sealed) => sealed.footer().end,
        }
    }

    /// Where its last group ends, as it was first written.
    pub(super) fn raw_end(&self) -> u64 {
        match self {
            Self::Raw(raw) => raw.published().end,
            Self::Sealed(sealed) => sealed.footer().raw_end,
        }
    }

    /// The first and last moments; `None` without events.
    pub(super) fn extent(&self) -> Option<Extent> {
        match self {
            Self::Raw(raw) => raw.published().postings.extent(),
            Self::Sealed(sealed) => sealed.footer().extent,
        }
    }
}

/// The dictionaries that were needed so far.
pub(super) struct Dictionaries {
    known: HashMap<u32, Arc<Dictionary>>,
    newest: u32,
}

impl Dictionaries {
    /// `newest` is the number of the newest file; 0 for none.
    pub(super) fn new(newest: u32) -> Self {
        Self { known: HashMap::from([(0, Arc::new(Dictionary::none()))]), newest }
    }

    /// The dictionary with this number; 0 stands for none.
    pub(super) fn get(&mut self, disk: &dyn Disk, id: u32) -> Result<Arc<Dictionary>, LogError> {
        if let Some(dictionary) = self.known.get(&id) {
            return Ok(Arc::clone(dictionary));
        }
        let dictionary = Arc::new(Dictionary::read(disk, id)?);
        self.known.insert(id, Arc::clone(&dictionary));
        Ok(dictionary)
    }

    /// The number of the dictionary to compress with; 0 for none.
    pub(super) fn newest(&self) -> u32 {
        self.newest
    }

    /// Compresses with `dictionary` from now on.
    pub(super) fn add(&mut self, dictionary: Dictionary) {
        self.newest = dictionary.id;
        self.known.insert(dictionary.id, Arc::new(dictionary));
    }
}
