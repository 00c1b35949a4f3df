//! The list of seeds that ever broke a promise. They are run again with every change.

use crate::run::BackendKind;

/// A seed that once failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListedSeed {
    pub seed: u64,
    pub kind: BackendKind,
}

/// Reads a list: a line has a seed, its backend and why it is here. Lines that start with `#` are for readers.
pub fn parse(text: &str) -> Result<Vec<ListedSeed>, String> {
    let lines = text.lines().zip(1..).map(|(line, number)| (line.trim(), number));
    let meant = lines.filter(|(line, _)| !line.is_empty() && !line.starts_with('#'));
    meant.map(|(line, number)| listed(line).map_err(|problem| format!("line {number}: {problem}"))).collect()
}

fn listed(line: &str) -> Result<ListedSeed, String> {
    let mut words = line.split_whitespace();
    let (seed, kind) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    let seed = seed.parse().map_err(|_| format!("{seed} must be a seed"))?;
    let kind = BackendKind::from_name(kind).ok_or_else(|| format!("there is no backend {kind}"))?;
    words.next().ok_or("it does not say why it is here")?;
    Ok(ListedSeed { seed, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_a_seed_a_backend_and_a_reason() {
        for (text, problem) in [
            ("x memory it broke", "line 1: x must be a seed"),
            ("# so\n\n7 tape it broke", "line 3: there is no backend tape"),
            ("7 memory", "line 1: it does not say why it is here"),
        ] {
            assert_eq!(parse(text).unwrap_err(), problem);
        }
        let list = parse("# so\n\n7 memory it broke\n 8  embedded it broke\n").unwrap();
        let expected = [
            ListedSeed { seed: 7, kind: BackendKind::Memory },
            ListedSeed { seed: 8, kind: BackendKind::Embedded },
        ];
        assert_eq!(list, expected);
    }

    #[test]
    fn the_list_in_the_tree_can_be_read() {
        assert!(!parse(include_str!("../seeds.txt")).unwrap().is_empty());
    }
}
