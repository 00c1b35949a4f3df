//! The line before a chunk: its size in hexadecimal digits, and its signature if chunks are signed.

use super::ChunkedError;
use crate::hex;

/// How long the line may be, without its end. Sixteen digits and a signature take 97 bytes.
pub const SIZE_LINE_BYTES_MAX: usize = 128;

const SIZE_DIGITS_MAX: usize = 16;

/// What the line says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SizeLine {
    pub(super) size: u64,
    /// There if chunks are signed.
    pub(super) signature: Option<[u8; 32]>,
}

impl SizeLine {
    pub(super) fn parse(line: &str, signed: bool) -> Result<Self, ChunkedError> {
        let (digits, signature) = match line.split_once(';') {
            Some((digits, extension)) if signed => {
                let signature = extension.strip_prefix("chunk-signature=");
                let problem = ChunkedError::Malformed("a chunk has no signature");
                // What is no signature at all is wrong like any other.
                (digits, Some(hex::decode_32(signature.ok_or(problem)?).ok_or(ChunkedError::WrongSignature)?))
            }
            None if !signed => (line, None),
            None => return Err(ChunkedError::Malformed("a chunk has no signature")),
            Some(_) => {
                return Err(ChunkedError::Malformed("a chunk is signed, and the headers say it is not"));
            }
        };
        let is_size = (1..=SIZE_DIGITS_MAX).contains(&digits.len())
            && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let size = u64::from_str_radix(digits, 16).ok().filter(|_| is_size);
        Ok(Self { size: size.ok_or(ChunkedError::Malformed("the size of a chunk is no number"))?, signature })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_line_is_a_number_and_perhaps_a_signature() {
        let signature = "0f".repeat(32);
        let signed = |line: &str| line.replace("SIG", &format!("chunk-signature={signature}"));
        for (line, is_signed, expected) in [
            ("0", false, Ok(0)),
            ("10000", false, Ok(65_536)),
            ("fF", false, Ok(255)),
            ("ffffffffffffffff", false, Ok(u64::MAX)),
            ("1ffffffffffffffff", false, Err("is no number")),
            ("00000000000000001", false, Err("is no number")),
            ("", false, Err("is no number")),
            ("+1", false, Err("is no number")),
            ("0x1", false, Err("is no number")),
            (" 1", false, Err("is no number")),
            ("1;SIG", true, Ok(1)),
            ("1;SIG", false, Err("the headers say it is not")),
            ("1", true, Err("has no signature")),
            ("1;signature=00", true, Err("has no signature")),
            ("1;chunk-signature=00", true, Err("not the one")),
            (";SIG", true, Err("is no number")),
        ] {
            match (SizeLine::parse(&signed(line), is_signed), expected) {
                (Ok(found), Ok(size)) => {
                    assert_eq!(found, SizeLine { size, signature: is_signed.then_some([0x0f; 32]) });
                }
                (Err(found), Err(told)) => assert!(found.to_string().contains(told), "{line}: {found}"),
                (found, _) => panic!("{line}: {found:?}"),
            }
        }
    }
}
