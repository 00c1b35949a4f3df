//! Bytes as hexadecimal digits, in the one form that AWS writes: lower case, two digits for a byte.

const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// The bytes as digits.
pub fn encode(bytes: &[u8]) -> String {
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble & 0x0f)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

/// The 32 bytes of a hash or a signature. Upper case is refused: what is signed is the text.
pub fn decode_32(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = value(pair[0])? << 4 | value(pair[1])?;
    }
    Some(bytes)
}

fn value(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirty_two_bytes_are_sixty_four_digits_in_lower_case() {
        let bytes: [u8; 32] = std::array::from_fn(|index| u8::try_from(index * 8).unwrap());
        let text = encode(&bytes);
        assert!(text.starts_with("0008101820") && text.ends_with("f0f8"), "{text}");
        assert_eq!(decode_32(&text), Some(bytes));
        for wrong in
            ["", "00", &text.to_uppercase(), &text[1..], &format!("{text}00"), &text.replace('f', "g")]
        {
            assert_eq!(decode_32(wrong), None, "{wrong}");
        }
    }
}
