//! Finds a posting list by its key: pages of hashes in the file, the first hash of each page in memory.

use crate::codec::{BadBytes, Reader};

/// The most lists of a page.
const PAGE_LISTS: usize = 128;
const LIST_BYTES: usize = 20;
const PAGE_BYTES: usize = PAGE_LISTS * LIST_BYTES + 4;

/// Where a list is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ListPlace {
    pub(super) hash: u64,
    pub(super) offset: u64,
    /// The length of the list's head, which holds the key.
    pub(super) head_len: u32,
}

/// The first hash of each page.
#[derive(Debug, Default)]
pub(super) struct Directory {
    first_hashes: Vec<u64>,
    lists: usize,
}

impl Directory {
    /// Appends the pages of `lists`, which are sorted by hash.
    pub(super) fn write(lists: &[ListPlace], out: &mut Vec<u8>) -> Self {
        let mut first_hashes = Vec::new();
        for page in lists.chunks(PAGE_LISTS) {
            let start = out.len();
            first_hashes.push(page[0].hash);
            for list in page {
                out.extend_from_slice(&list.hash.to_le_bytes());
                out.extend_from_slice(&list.offset.to_le_bytes());
                out.extend_from_slice(&list.head_len.to_le_bytes());
            }
            let checksum = crc32fast::hash(&out[start..]);
            out.extend_from_slice(&checksum.to_le_bytes());
        }
        Self { first_hashes, lists: lists.len() }
    }

    pub(super) fn put_index(&self, out: &mut Vec<u8>) {
        for hash in &self.first_hashes {
            out.extend_from_slice(&hash.to_le_bytes());
        }
    }

    pub(super) fn read_index(reader: &mut Reader<'_>, pages: u32, lists: u32) -> Result<Self, BadBytes> {
        let lists = lists as usize;
        if lists.div_ceil(PAGE_LISTS) != pages as usize {
            return Err(BadBytes("its directory has the wrong length"));
        }
        let first_hashes = (0..pages).map(|_| reader.u64()).collect::<Result<_, _>>()?;
        Ok(Self { first_hashes, lists })
    }

    pub(super) fn page_count(&self) -> usize {
        self.first_hashes.len()
    }

    /// The pages that may name a list with this hash.
    pub(super) fn pages_of(&self, hash: u64) -> std::ops::Range<usize> {
        let start = self.first_hashes.partition_point(|first| *first < hash).saturating_sub(1);
        let end = self.first_hashes.partition_point(|first| *first <= hash);
        start..end.max(start)
    }

    /// Where a page is, counted from the first page.
    pub(super) fn page_range(&self, page: usize) -> std::ops::Range<usize> {
        let lists = self.lists.saturating_sub(page * PAGE_LISTS).min(PAGE_LISTS);
        let start = page * PAGE_BYTES;
        start..start + lists * LIST_BYTES + 4
    }
}

/// The lists that a page names.
pub(super) fn read_page(bytes: &[u8]) -> Result<Vec<ListPlace>, BadBytes> {
    let (lists, checksum) =
        bytes.split_at_checked(bytes.len().wrapping_sub(4)).ok_or(BadBytes("ends too early"))?;
    if checksum != crc32fast::hash(lists).to_le_bytes() {
        return Err(BadBytes("a page of its directory has the wrong checksum"));
    }
    let mut reader = Reader::new(lists);
    let mut places = Vec::with_capacity(lists.len() / LIST_BYTES);
    while !reader.is_at_end() {
        places.push(ListPlace { hash: reader.u64()?, offset: reader.u64()?, head_len: reader.u32()? });
    }
    Ok(places)
}

/// FNV-1a: the same on every machine and in every version.
pub(super) fn hash(key: &[u8]) -> u64 {
    key.iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}
