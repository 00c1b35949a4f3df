//! A file's contents: what programs see, what a power loss leaves for sure, and what lies between.

use std::collections::BTreeMap;

use crate::rng::Rng;

/// What a disk writes whole or not at all, in bytes.
pub(crate) const SECTOR_BYTES: usize = 512;
/// How many versions of one unsynced sector are remembered; a power loss may leave any of them.
const VERSIONS_MAX: usize = 4;

type Sector = [u8; SECTOR_BYTES];

/// One file, whatever its names are.
#[derive(Debug, Default)]
pub(super) struct Inode {
    /// What programs read.
    seen: Vec<u8>,
    /// What was made durable.
    kept: Vec<u8>,
    /// Sectors written since they were last made durable: their versions, oldest first.
    unsynced: BTreeMap<usize, Vec<Sector>>,
    /// Lengths the file has had since its length was last made durable.
    lengths: Vec<usize>,
    /// Which sectors have a place on the disk. Writing to them needs no space.
    placed: Vec<bool>,
}

/// What happens to unsynced things when the power goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Kept,
    Lost,
    /// Each for itself.
    Mixed,
}

impl Fate {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        rng.weighted(&[(1, Self::Kept), (1, Self::Lost), (2, Self::Mixed)])
    }

    /// Whether the next unsynced thing is kept.
    pub(super) fn keeps(self, rng: &mut Rng) -> bool {
        match self {
            Self::Kept => true,
            Self::Lost => false,
            Self::Mixed => rng.chance(500),
        }
    }
}

impl Inode {
    /// Turns a bit over where it lies: nobody wrote it.
    pub(super) fn flip(&mut self, byte: usize, bit: u32) {
        for bytes in [&mut self.seen, &mut self.kept] {
            if let Some(byte) = bytes.get_mut(byte) {
                *byte ^= 1 << (bit % 8);
            }
        }
    }

    /// What programs read.
    pub(super) fn seen(&self) -> &[u8] {
        &self.seen
    }

    pub(super) fn len(&self) -> usize {
        self.seen.len()
    }

    /// How many sectors the file takes on the disk.
    pub(super) fn placed_sectors(&self) -> usize {
        self.placed.iter().filter(|placed| **placed).count()
    }

    /// How many sectors more the disk needs for a write here.
    pub(super) fn sectors_needed(&self, offset: usize, len: usize) -> usize {
        sectors(offset, len).filter(|sector| !self.placed.get(*sector).copied().unwrap_or(false)).count()
    }

    pub(super) fn read(&self, buf: &mut [u8], offset: usize) -> usize {
        let Some(rest) = self.seen.get(offset..) else { return 0 };
        let count = rest.len().min(buf.len());
        buf[..count].copy_from_slice(&rest[..count]);
        count
    }

    /// Gives the sectors of this part of the file a place on the disk.
    pub(super) fn place(&mut self, offset: usize, len: usize) {
        for sector in sectors(offset, len) {
            if self.placed.len() <= sector {
                self.placed.resize(sector + 1, false);
            }
            self.placed[sector] = true;
        }
    }

    pub(super) fn write(&mut self, buf: &[u8], offset: usize) {
        if buf.is_empty() {
            return;
        }
        self.place(offset, buf.len());
        if self.seen.len() < offset + buf.len() {
            self.set_len(offset + buf.len());
        }
        self.seen[offset..offset + buf.len()].copy_from_slice(buf);
        for sector in sectors(offset, buf.len()) {
            self.remember(sector);
        }
    }

    /// A write that was interrupted: each of its sectors is written or not.
    pub(super) fn write_some(&mut self, buf: &[u8], offset: usize, rng: &mut Rng) {
        let end = offset + buf.len();
        for sector in sectors(offset, buf.len()) {
            if rng.chance(500) {
                let from = offset.max(sector * SECTOR_BYTES);
                let to = end.min((sector + 1) * SECTOR_BYTES);
                self.write(&buf[from - offset..to - offset], from);
            }
        }
    }

    pub(super) fn set_len(&mut self, len: usize) {
        let before = self.seen.len();
        if len == before {
            return;
        }
        self.lengths.push(before);
        self.seen.resize(len, 0);
        if len < before {
            self.placed.truncate(len.div_ceil(SECTOR_BYTES));
            // Should the file grow again, what was cut off reads as zero.
            for sector in sectors(len, before - len) {
                self.remember(sector);
            }
        }
    }

    /// Makes contents and length durable.
    pub(super) fn sync(&mut self) {
        self.keep_len(self.seen.len());
        for (sector, mut versions) in std::mem::take(&mut self.unsynced) {
            if let Some(newest) = versions.pop() {
                self.keep(sector, &newest);
            }
        }
        self.lengths.clear();
    }

    /// A sync that failed: nobody can say what of it was written. Some of the rest is forgotten, so that a later sync
    /// passes without having written it, as Linux does.
    pub(super) fn sync_some(&mut self, rng: &mut Rng) {
        if rng.chance(500) {
            self.keep_len(self.seen.len().max(self.kept.len()));
        }
        for (sector, mut versions) in std::mem::take(&mut self.unsynced) {
            match rng.below(3) {
                0 => {
                    if let Some(newest) = versions.pop() {
                        self.keep(sector, &newest);
                    }
                }
                1 => {}
                _ => {
                    self.unsynced.insert(sector, versions);
                }
            }
        }
    }

    /// The power goes: of what was not synced each sector has its own fate.
    pub(super) fn lose_power(&mut self, rng: &mut Rng) {
        let fate = Fate::draw(rng);
        let mut lengths = std::mem::take(&mut self.lengths);
        lengths.push(self.seen.len());
        if fate.keeps(rng) {
            let len = if fate == Fate::Mixed { lengths[rng.index(lengths.len())] } else { self.seen.len() };
            self.keep_len(len);
        }
        for (sector, versions) in std::mem::take(&mut self.unsynced) {
            if fate.keeps(rng) {
                let which = if fate == Fate::Mixed { rng.index(versions.len()) } else { versions.len() - 1 };
                self.keep(sector, &versions[which]);
            }
        }
        self.seen.clone_from(&self.kept);
        self.placed.truncate(self.seen.len().div_ceil(SECTOR_BYTES));
    }

    fn keep_len(&mut self, len: usize) {
        self.kept.resize(len, 0);
    }

    /// Makes one sector durable, as far as the durable length reaches.
    fn keep(&mut self, sector: usize, contents: &Sector) {
        let from = sector * SECTOR_BYTES;
        if from < self.kept.len() {
            let to = self.kept.len().min(from + SECTOR_BYTES);
            self.kept[from..to].copy_from_slice(&contents[..to - from]);
        }
    }

    fn remember(&mut self, sector: usize) {
        let from = (sector * SECTOR_BYTES).min(self.seen.len());
        let to = (from + SECTOR_BYTES).min(self.seen.len());
        let mut contents = [0; SECTOR_BYTES];
        contents[..to - from].copy_from_slice(&self.seen[from..to]);
        let versions = self.unsynced.entry(sector).or_default();
        if versions.len() == VERSIONS_MAX {
            versions.remove(0);
        }
        versions.push(contents);
    }
}

fn sectors(offset: usize, len: usize) -> std::ops::Range<usize> {
    if len == 0 { 0..0 } else { offset / SECTOR_BYTES..(offset + len).div_ceil(SECTOR_BYTES) }
}
