//! Dictionaries: what most events have in common, so that small blocks compress well.
//!
//! One is trained from the first segment that is sealed and kept in a file of its own; later segments name it.

use std::io;
use std::sync::Mutex;

use zstd::bulk::{Compressor, Decompressor};

use super::files::{self, VERSION};
use crate::codec::Reader;
use crate::disk::{Disk, read_exact_at};
use crate::log::{LogError, lock};

const MAGIC: [u8; 8] = *b"TMDICTNY";
const HEADER_BYTES: usize = 20;
/// A larger file is not a dictionary of ours.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// How much training looks at, in units of the dictionary's size.
const SAMPLE_RATIO: usize = 48;
/// Fewer events than this give no useful dictionary.
const SAMPLES_MIN: usize = 256;

/// A dictionary, or none, and the decompressors that use it.
pub(in crate::log) struct Dictionary {
    /// The number of the file; 0 for no dictionary.
    pub(in crate::log) id: u32,
    bytes: Vec<u8>,
    idle: Mutex<Vec<Decompressor<'static>>>,
}

impl Dictionary {
    pub(in crate::log) fn none() -> Self {
        Self { id: 0, bytes: Vec::new(), idle: Mutex::default() }
    }

    /// Trains a dictionary, or tells that there is too little to learn from.
    pub(in crate::log) fn train(id: u32, samples: &Samples, bytes_max: usize) -> Option<Self> {
        if samples.sizes.len() < SAMPLES_MIN {
            return None;
        }
        let bytes = zstd::dict::from_continuous(&samples.bytes, &samples.sizes, bytes_max).ok()?;
        Some(Self { id, bytes, idle: Mutex::default() })
    }

    pub(in crate::log) fn write(&self, disk: &dyn Disk) -> Result<(), LogError> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + self.bytes.len());
        bytes.extend_from_slice(&MAGIC);
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&self.id.to_le_bytes());
        bytes.extend_from_slice(&self.checksum().to_le_bytes());
        bytes.extend_from_slice(&self.bytes);
        files::write_whole(disk, &files::dictionary(self.id), &bytes)
    }

    pub(in crate::log) fn read(disk: &dyn Disk, id: u32) -> Result<Self, LogError> {
        let path = files::dictionary(id);
        let read = || {
            let file = disk.open(&path)?;
            let len = file.len()?;
            if !(HEADER_BYTES as u64..=FILE_BYTES_MAX).contains(&len) {
                return Ok(Vec::new());
            }
            let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
            read_exact_at(&*file, &mut bytes, 0)?;
            Ok(bytes)
        };
        let mut bytes = read().map_err(LogError::io("read", &path))?;
        let mut reader = Reader::new(&bytes);
        let header = (reader.array::<8>(), reader.u32(), reader.u32(), reader.u32());
        let (Ok(MAGIC), Ok(version), Ok(named), Ok(checksum)) = header else {
            return Err(LogError::corrupt(&path, 0, "it is not a dictionary"));
        };
        if version > VERSION {
            return Err(LogError::Newer { file: path, found: version, known: VERSION });
        }
        let dictionary = Self { id: named, bytes: bytes.split_off(HEADER_BYTES), idle: Mutex::default() };
        if named != id || dictionary.checksum() != checksum {
            return Err(LogError::corrupt(&path, 0, "the checksum is wrong"));
        }
        Ok(dictionary)
    }

    pub(in crate::log) fn compressor(&self, level: i32) -> io::Result<Compressor<'static>> {
        Compressor::with_dictionary(level, &self.bytes)
    }

    /// The `len` bytes that were compressed to `compressed`.
    pub(in crate::log) fn decompress(&self, compressed: &[u8], len: usize) -> io::Result<Vec<u8>> {
        let idle = lock::lock(&self.idle).pop();
        let mut decompressor = match idle {
            Some(decompressor) => decompressor,
            None => Decompressor::with_dictionary(&self.bytes)?,
        };
        let mut bytes = Vec::with_capacity(len);
        let result = decompressor.decompress_to_buffer(compressed, &mut bytes);
        lock::lock(&self.idle).push(decompressor);
        match result? {
            count if count == len => Ok(bytes),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "has another length than it says")),
        }
    }

    fn checksum(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&self.id.to_le_bytes());
        hasher.update(&self.bytes);
        hasher.finalize()
    }
}

/// Events to learn from.
#[derive(Debug)]
pub(in crate::log) struct Samples {
    bytes: Vec<u8>,
    sizes: Vec<usize>,
    bytes_max: usize,
}

impl Samples {
    /// As many as are useful for a dictionary of this size.
    pub(in crate::log) fn new(dictionary_bytes: usize) -> Self {
        Self {
            bytes: Vec::new(),
            sizes: Vec::new(),
            bytes_max: dictionary_bytes.saturating_mul(SAMPLE_RATIO),
        }
    }

    /// Takes an event; `false` when there are enough.
    pub(in crate::log) fn push(&mut self, event: &[u8]) -> bool {
        if self.bytes.len() + event.len() > self.bytes_max {
            return false;
        }
        self.bytes.extend_from_slice(event);
        self.sizes.push(event.len());
        true
    }
}
