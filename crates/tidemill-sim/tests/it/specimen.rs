//! A data directory with something of everything, packed for the tests that open it years later.

use std::io::Write;

use tidemill_sim::specimen::grow;

/// A world has something of everything after this many steps, with luck, and is still small.
const STEPS: u64 = 300;

/// The files as a tar archive: what `tar` unpacks, without times and owners, so that the same files give the same bytes.
fn tar(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    const BLOCK: usize = 512;
    let mut out = Vec::new();
    for (path, bytes) in files {
        let mut head = [0u8; BLOCK];
        let mut put = |at: usize, text: &str| head[at..at + text.len()].copy_from_slice(text.as_bytes());
        assert!(path.len() < 100, "{path}");
        put(0, path);
        put(100, "0000600\0");
        put(108, "0000000\0");
        put(116, "0000000\0");
        put(124, &format!("{:011o}\0", bytes.len()));
        put(136, "00000000000\0");
        put(148, "        ");
        put(156, "0");
        put(257, "ustar\x0000");
        let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
        head[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        out.extend_from_slice(&head);
        out.extend_from_slice(bytes);
        out.resize(out.len().next_multiple_of(BLOCK), 0);
    }
    out.resize(out.len() + 2 * BLOCK, 0);
    out
}

#[test]
fn a_seed_gives_one_specimen() {
    let [one, other] =
        [(); 2].map(|()| grow(1, 60).unwrap_or_else(|failure| panic!("{}", failure.violation)));
    assert_eq!(one.export, other.export);
    assert!(one.files == other.files);
}

/// Writes the archive that `TIDEMILL_SPECIMEN` names: `cargo test -p tidemill-sim --test it specimen -- --ignored`.
#[test]
#[ignore = "writes a fixture; run it when the format gets a new version"]
#[expect(clippy::disallowed_methods, reason = "nobody else tells a test where to write")]
fn write_the_specimen() {
    let path = std::env::var("TIDEMILL_SPECIMEN").expect("TIDEMILL_SPECIMEN names the archive to write");
    let grow = |seed| grow(seed, STEPS).unwrap_or_else(|failure| panic!("{}", failure.violation));
    let mut specimen = (1..200)
        .map(grow)
        .find(|specimen| specimen.lacks.is_empty())
        .expect("one has something of everything");
    specimen.files.retain(|(path, _)| path != "log/spare");
    specimen.files.push(("export.jsonl".to_owned(), specimen.export));
    let packed = zstd::encode_all(tar(&specimen.files).as_slice(), 19).unwrap();
    std::fs::File::create(path).unwrap().write_all(&packed).unwrap();
}
