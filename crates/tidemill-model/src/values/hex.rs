//! Bytes as hexadecimal digits.

use std::fmt::Write as _;

/// Two lower-case digits for each byte.
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string does not fail");
        text
    })
}

/// The bytes behind exactly as many digits, in either case.
pub fn decode<const COUNT: usize>(text: &str) -> Option<[u8; COUNT]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * COUNT {
        return None;
    }
    let digit = |at: usize| char::from(digits[at]).to_digit(16).and_then(|value| u8::try_from(value).ok());
    let mut bytes = [0; COUNT];
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = digit(2 * at)? << 4 | digit(2 * at + 1)?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_encoded_is_read_again() {
        let bytes: [u8; 256] = std::array::from_fn(|at| u8::try_from(at).unwrap());
        assert_eq!(decode(&encode(&bytes)), Some(bytes));
        assert_eq!(encode(&[0, 0x7f, 0xff]), "007fff");
        assert_eq!(decode("00FfA0"), Some([0, 0xff, 0xa0]));
        for other in ["", "00ff", "00ffa00", "00ffg0", "+0ffa0", "0é0f"] {
            assert_eq!(decode::<3>(other), None, "{other}");
        }
    }
}
