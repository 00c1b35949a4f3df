//! The known word that somebody may have meant.

/// Words that are less alike are not offered. Jaro's likeness is 1 for equal words and 0 for words without a letter in common.
const LIKENESS_MIN: f64 = 0.75;
/// Longer words are no slips of the pen, and comparing costs their lengths' product.
const WORD_CHARS_MAX: usize = 64;

/// The word of `known` that is most like `given`, if any is like it. Case, `_` and `-` do not matter.
pub fn nearest<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given = folded(given);
    if given.is_empty() || given.len() > WORD_CHARS_MAX {
        return None;
    }
    let mut best = None;
    for word in known {
        let likeness = jaro(&given, &folded(word));
        if likeness >= LIKENESS_MIN && best.is_none_or(|(_, before)| likeness > before) {
            best = Some((word, likeness));
        }
    }
    best.map(|(word, _)| word)
}

/// What to say of an unknown field: the one that may have been meant, or all that are known.
pub fn unknown_field<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.into_iter().collect();
    match nearest(given, known.iter().copied()) {
        Some(word) => format!("unknown field; did you mean {word}?"),
        None if known.is_empty() => "unknown field; known are none".to_owned(),
        None => format!("unknown field; known are {}", known.join(", ")),
    }
}

fn folded(word: &str) -> Vec<char> {
    word.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase).collect()
}

/// Letters match if they are the same and not far apart; matching letters in another order count half.
#[expect(clippy::cast_precision_loss, reason = "words are short")]
fn jaro(a: &[char], b: &[char]) -> f64 {
    if a.is_empty() || b.is_empty() {
        return 0.0;
    }
    // In the shortest words, too, two letters may have changed places.
    let reach = (a.len().max(b.len()) / 2).saturating_sub(1).max(1);
    let mut taken = vec![false; b.len()];
    let mut matching_a = Vec::new();
    for (at, letter) in a.iter().enumerate() {
        let (low, high) = (at.saturating_sub(reach), (at + reach + 1).min(b.len()));
        if let Some(found) = (low..high).find(|place| !taken[*place] && b[*place] == *letter) {
            taken[found] = true;
            matching_a.push(*letter);
        }
    }
    if matching_a.is_empty() {
        return 0.0;
    }
    let matching_b = b.iter().zip(&taken).filter(|(_, taken)| **taken).map(|(letter, _)| *letter);
    let moved = matching_a.iter().zip(matching_b).filter(|(left, right)| **left != *right).count();
    let matching = matching_a.len() as f64;
    (matching / a.len() as f64 + matching / b.len() as f64 + (matching - moved as f64 / 2.0) / matching) / 3.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_find_what_was_meant_and_other_words_nothing() {
        let fields = [
            "taskId",
            "name",
            "run",
            "agent",
            "dependsOn",
            "input",
            "timeout",
            "idleTimeout",
            "retry",
            "env",
            "labels",
        ];
        for (given, expected) in [
            ("depends_on", Some("dependsOn")),
            ("dependOn", Some("dependsOn")),
            ("dependson", Some("dependsOn")),
            ("retries", Some("retry")),
            ("TIMEOUT", Some("timeout")),
            ("idle-timeout", Some("idleTimeout")),
            ("label", Some("labels")),
            ("runs", Some("run")),
            ("rnu", Some("run")),
            ("nmae", Some("name")),
            ("colour", None),
            ("x", None),
            ("", None),
            ("__", None),
        ] {
            assert_eq!(nearest(given, fields), expected, "{given}");
        }
        assert_eq!(nearest(&"a".repeat(100_000), ["a"]), None);
        assert_eq!(unknown_field("job", ["jobs"]), "unknown field; did you mean jobs?");
        assert_eq!(unknown_field("x", ["a", "b"]), "unknown field; known are a, b");
    }
}
