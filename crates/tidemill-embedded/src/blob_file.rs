//! A blob as it lies in its file: between two marks, with its length and a checksum, so that damage is noticed.
//!
//! Either mark tells that the file has this form, so that neither a cut nor bytes written over one end make it pass for
//! something else. A file without marks is a blob of the form before and is taken as it is.

/// No text begins or ends with it, since 0xff is in no UTF-8. The last byte is the version.
const MARK: [u8; 8] = [0xff, b'T', b'M', b'B', b'L', b'O', b'B', 1];
const VERSION_AT: usize = MARK.len() - 1;
/// The checksum, the length and the mark.
const TAIL_BYTES: usize = 4 + 8 + MARK.len();

/// The bytes of the file of a blob.
pub(crate) fn wrap(content: &[u8]) -> Vec<u8> {
    let mut file = Vec::with_capacity(MARK.len() + content.len() + TAIL_BYTES);
    file.extend_from_slice(&MARK);
    file.extend_from_slice(content);
    file.extend_from_slice(&crc32fast::hash(content).to_le_bytes());
    file.extend_from_slice(&(content.len() as u64).to_le_bytes());
    file.extend_from_slice(&MARK);
    file
}

/// The blob that a file holds, or what is wrong with the file.
pub(crate) fn unwrap(mut file: Vec<u8>) -> Result<Vec<u8>, &'static str> {
    let name = &MARK[..VERSION_AT];
    let starts = file.starts_with(name);
    let ends = file.len() >= MARK.len() && file[file.len() - MARK.len()..].starts_with(name);
    if !starts && !ends {
        // An empty file is one whose bytes never came, and so is one that ends within its first mark.
        return if name.starts_with(&file) { Err("it was cut") } else { Ok(file) };
    }
    if starts && file.get(VERSION_AT).is_some_and(|version| *version > MARK[VERSION_AT]) {
        return Err("it has a form this release does not know");
    }
    let Some(end) = file.len().checked_sub(TAIL_BYTES).filter(|end| *end >= MARK.len()) else {
        return Err("it was cut");
    };
    if !file.starts_with(&MARK) || !file.ends_with(&MARK) {
        return Err("it was cut or written over");
    }
    let content = &file[MARK.len()..end];
    let [length, checksum] = [end + 4..end + 12, end..end + 4].map(|range| {
        let mut bytes = [0; 8];
        bytes[..range.len()].copy_from_slice(&file[range]);
        u64::from_le_bytes(bytes)
    });
    if length != content.len() as u64 || checksum != u64::from(crc32fast::hash(content)) {
        return Err("its checksum is wrong");
    }
    file.truncate(end);
    file.drain(..MARK.len());
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blobs_come_back_and_any_damage_is_noticed() {
        for content in [&b""[..], b"x", br#"{"large":"value"}"#, &[0xff; 40], &MARK] {
            let file = wrap(content);
            assert_eq!(unwrap(file.clone()).unwrap(), content);
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

    #[test]
    fn a_blob_of_the_form_before_is_taken_as_it_is() {
        for content in [&b"{}"[..], b"TMBLOB", &[0xff, 0xff]] {
            assert_eq!(unwrap(content.to_vec()).unwrap(), content);
        }
    }
}
