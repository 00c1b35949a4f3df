//! Tells whether two requests under one id are the same, by SHA-256.
//!
//! Digests are stored, so the function must be the same in every release.

use sha2::{Digest, Sha256};

/// The digest of `parts`, each with its length before it.
pub(crate) fn of(parts: &[&[u8]]) -> [u8; 32] {
    let mut digest = Sha256::new();
    for part in parts {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_what_former_releases_stored() {
        // printf '\0\0\0\0\0\0\0\2ab\0\0\0\0\0\0\0\1c' | sha256sum
        let expected = "601d5476e2ccfe2c87a2bba7a322659734a05749d5b5aa781f513e4912db0d5f";
        let [high, low] =
            [0, 16].map(|at| u128::from_be_bytes(of(&[b"ab", b"c"])[at..at + 16].try_into().unwrap()));
        assert_eq!(format!("{high:032x}{low:032x}"), expected);
    }

    #[test]
    fn parts_do_not_run_together() {
        assert_ne!(of(&[b"ab", b"c"]), of(&[b"a", b"bc"]));
    }
}
