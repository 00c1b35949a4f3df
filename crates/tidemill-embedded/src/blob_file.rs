//! A blob as it lies in its file: between two marks, with whose it is, its length and a checksum, so that damage is
//! noticed and no file passes for another blob.
//!
//! Either mark tells that the file has such a form, so that neither a cut nor bytes written over one end make it pass for
//! something else. Files of the first form do not say whose they are. A file without marks is a blob of the form before
//! that and is taken as it is.

use tidemill_model::TenantId;

/// No text begins or ends with it, since 0xff is in no UTF-8. The version follows.
const NAME: [u8; 7] = [0xff, b'T', b'M', b'B', b'L', b'O', b'B'];
const MARK_BYTES: usize = NAME.len() + 1;
const VERSION_AT: usize = NAME.len();
/// Without the owner.
const FIRST: u8 = 1;
const VERSION: u8 = 2;

/// What a file holds.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BlobFile {
    pub(crate) content: Vec<u8>,
    /// Whose it is; files of older forms do not say.
    pub(crate) owner: Option<String>,
}

/// Whose a blob is: tenant and key.
pub(crate) fn owner(tenant: &TenantId, key: &str) -> String {
    format!("{tenant}\n{key}")
}

/// The bytes of the file of a blob.
pub(crate) fn wrap(content: &[u8], owner: &str) -> Vec<u8> {
    let mut file = Vec::with_capacity(content.len() + owner.len() + tail_bytes(VERSION) + MARK_BYTES);
    file.extend_from_slice(&mark(VERSION));
    file.extend_from_slice(content);
    file.extend_from_slice(owner.as_bytes());
    let lengths = lengths(content.len(), owner.len());
    file.extend_from_slice(&checksum(&[content, owner.as_bytes(), &lengths]).to_le_bytes());
    file.extend_from_slice(&lengths);
    file.extend_from_slice(&mark(VERSION));
    file
}

/// The blob that a file holds, or what is wrong with the file.
pub(crate) fn unwrap(file: Vec<u8>) -> Result<BlobFile, &'static str> {
    let starts = file.starts_with(&NAME);
    let ends = file.len() >= MARK_BYTES && file[file.len() - MARK_BYTES..].starts_with(&NAME);
    if !starts && !ends {
        // An empty file is one whose bytes never came, and so is one that ends within its first mark.
        let is_cut = NAME.starts_with(&file);
        return if is_cut { Err("it was cut") } else { Ok(BlobFile { content: file, owner: None }) };
    }
    if starts && file.get(VERSION_AT).is_some_and(|version| *version > VERSION) {
        return Err("it has a form this release does not know");
    }
    match [FIRST, VERSION].into_iter().find(|version| is_marked(&file, *version)) {
        Some(FIRST) => unwrap_first(file),
        Some(_) => unwrap_owned(file),
        None => Err("it was cut or written over"),
    }
}

fn is_marked(file: &[u8], version: u8) -> bool {
    file.starts_with(&mark(version)) && file.ends_with(&mark(version))
}

fn unwrap_first(file: Vec<u8>) -> Result<BlobFile, &'static str> {
    let end = end_of(&file, FIRST)?;
    let content = &file[MARK_BYTES..end];
    if number::<8>(&file, end + 4) != content.len() as u64
        || number::<4>(&file, end) != u64::from(checksum(&[content]))
    {
        return Err(WRONG);
    }
    Ok(BlobFile { content: between(file, end), owner: None })
}

fn unwrap_owned(file: Vec<u8>) -> Result<BlobFile, &'static str> {
    let end = end_of(&file, VERSION)?;
    let owner_bytes = usize::try_from(number::<4>(&file, end + 4)).map_err(|_| WRONG)?;
    let owner_at = end.checked_sub(owner_bytes).filter(|at| *at >= MARK_BYTES).ok_or(WRONG)?;
    let (content, owner) = (&file[MARK_BYTES..owner_at], &file[owner_at..end]);
    let lengths = lengths(content.len(), owner.len());
    if file[end + 4..end + 4 + LENGTHS_BYTES] != lengths
        || number::<4>(&file, end) != u64::from(checksum(&[content, owner, &lengths]))
    {
        return Err(WRONG);
    }
    let owner = Some(str::from_utf8(owner).map_err(|_| WRONG)?.to_owned());
    Ok(BlobFile { content: between(file, owner_at), owner })
}

const WRONG: &str = "its checksum is wrong";
const LENGTHS_BYTES: usize = 12;

fn mark(version: u8) -> [u8; MARK_BYTES] {
    let mut mark = [version; MARK_BYTES];
    mark[..VERSION_AT].copy_from_slice(&NAME);
    mark
}

/// The checksum, the lengths and the mark.
fn tail_bytes(version: u8) -> usize {
    4 + if version == FIRST { 8 } else { LENGTHS_BYTES } + MARK_BYTES
}

/// Where the tail begins.
fn end_of(file: &[u8], version: u8) -> Result<usize, &'static str> {
    file.len().checked_sub(tail_bytes(version)).filter(|end| *end >= MARK_BYTES).ok_or("it was cut")
}

/// The length of the owner, then that of the blob.
fn lengths(content: usize, owner: usize) -> [u8; LENGTHS_BYTES] {
    let mut bytes = [0; LENGTHS_BYTES];
    // Keys are far shorter; one that is not would not come back and so is noticed.
    bytes[..4].copy_from_slice(&u32::try_from(owner).unwrap_or(u32::MAX).to_le_bytes());
    bytes[4..].copy_from_slice(&(content as u64).to_le_bytes());
    bytes
}

fn checksum(parts: &[&[u8]]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize()
}

/// The number of `BYTES` bytes at a place within the file.
fn number<const BYTES: usize>(file: &[u8], at: usize) -> u64 {
    let mut bytes = [0; 8];
    bytes[..BYTES].copy_from_slice(&file[at..at + BYTES]);
    u64::from_le_bytes(bytes)
}

/// What is between the first mark and `end`.
fn between(mut file: Vec<u8>, end: usize) -> Vec<u8> {
    file.truncate(end);
    file.drain(..MARK_BYTES);
    file
}

/// The bytes of a file of the first form, as it was written before files said whose they are.
#[cfg(test)]
pub(crate) fn wrap_first(content: &[u8]) -> Vec<u8> {
    let mut file = mark(FIRST).to_vec();
    file.extend_from_slice(content);
    file.extend_from_slice(&checksum(&[content]).to_le_bytes());
    file.extend_from_slice(&(content.len() as u64).to_le_bytes());
    file.extend_from_slice(&mark(FIRST));
    file
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: &str = "acme\ntask/logs/r/r1-a1/logs/output.log";

    #[test]
    fn blobs_come_back_and_any_damage_is_noticed() {
        for content in [&b""[..], b"x", br#"{"large":"value"}"#, &[0xff; 40], &mark(VERSION)] {
            for (file, owner) in [(wrap(content, OWNER), Some(OWNER)), (wrap_first(content), None)] {
                let whole = BlobFile { content: content.to_vec(), owner: owner.map(str::to_owned) };
                assert_eq!(unwrap(file.clone()), Ok(whole));
                for at in 0..file.len() {
                    let mut flipped = file.clone();
                    flipped[at] ^= 0x10;
                    assert!(unwrap(flipped).is_err(), "byte {at} of {}", file.len());
                    assert!(unwrap(file[..at].to_vec()).is_err(), "cut at {at} of {}", file.len());
                    let mut over = file.clone();
                    over[at..(at + 8).min(file.len())].fill(0x5a);
                    assert!(unwrap(over).is_err(), "written over at {at} of {}", file.len());
                }
            }
        }
    }

    #[test]
    fn a_blob_of_the_form_before_is_taken_as_it_is() {
        for content in [&b"{}"[..], b"TMBLOB", &[0xff, 0xff]] {
            assert_eq!(unwrap(content.to_vec()).unwrap().content, content);
        }
    }
}
