//! The code of the functions, as it is deployed. The tests of the command line use this file too.

/// A zip with the one file that starts this program.
pub(crate) fn zip_of(program: &str) -> Vec<u8> {
    let file = format!("#!/bin/sh\nexec '{program}'\n");
    let name = b"bootstrap";
    let (size, crc) = (u32::try_from(file.len()).expect("it is short"), crc32fast::hash(file.as_bytes()));
    // What the entry and the directory both say: version, flags, method, time, date, checksum, sizes, lengths.
    let mut facts = vec![20, 0, 0, 0, 0, 0, 0, 0, 0x21, 0];
    facts.extend_from_slice(&crc.to_le_bytes());
    facts.extend_from_slice(&size.to_le_bytes());
    facts.extend_from_slice(&size.to_le_bytes());
    facts.extend_from_slice(&[9, 0, 0, 0]);
    let mut zip = b"PK\x03\x04".to_vec();
    zip.extend_from_slice(&facts);
    zip.extend_from_slice(name);
    zip.extend_from_slice(file.as_bytes());
    let start = u32::try_from(zip.len()).expect("it is short");
    zip.extend_from_slice(b"PK\x01\x02\x14\x03");
    zip.extend_from_slice(&facts);
    // No comment, the first disk, no attributes but the mode, the first entry.
    zip.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 0xed, 0x81, 0, 0, 0, 0]);
    zip.extend_from_slice(name);
    let length = u32::try_from(zip.len()).expect("it is short") - start;
    zip.extend_from_slice(b"PK\x05\x06\0\0\0\0\x01\0\x01\0");
    zip.extend_from_slice(&length.to_le_bytes());
    zip.extend_from_slice(&start.to_le_bytes());
    zip.extend_from_slice(&[0, 0]);
    zip
}
