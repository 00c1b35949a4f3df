//! Aligned columns.

use super::line;

/// Between two columns.
const GAP: &str = "  ";

/// Rows under headings. The last column takes what room is left.
pub(crate) struct Table {
    headings: &'static [&'static str],
    rows: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(headings: &'static [&'static str]) -> Self {
        Self { headings, rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.into_iter().map(|cell| line::clean(&cell)).collect());
    }

    /// The lines; none is wider than `width`, if there is one.
    pub(crate) fn lines(&self, width: Option<usize>) -> Vec<String> {
        let mut widths: Vec<usize> = self.headings.iter().map(|heading| heading.len()).collect();
        for row in &self.rows {
            for (cell, width) in row.iter().zip(&mut widths) {
                *width = (*width).max(line::columns(cell));
            }
        }
        let headings = self.headings.iter().map(|heading| (*heading).to_owned()).collect();
        let all = std::iter::once(&headings).chain(&self.rows);
        let lines = all.map(|row: &Vec<String>| {
            let padded = row.iter().zip(&widths).map(|(cell, width)| line::pad(cell, *width));
            let joined = padded.collect::<Vec<_>>().join(GAP);
            let joined = joined.trim_end();
            width.map_or_else(|| joined.to_owned(), |width| line::cut(joined, width))
        });
        lines.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_cut_at_the_width() {
        let mut table = Table::new(&["ID", "STATE", "ERROR"]);
        table.row(vec!["a".into(), "completed".into(), String::new()]);
        table.row(vec!["long-id".into(), "failed".into(), "one\ntwo".into()]);
        assert_eq!(
            table.lines(None),
            ["ID       STATE      ERROR", "a        completed", "long-id  failed     onetwo"]
        );
        assert_eq!(table.lines(Some(14))[2], "long-id  fail…");
    }
}
