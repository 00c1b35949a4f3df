//! Aligned columns.

use super::line;
use crate::help::fold;

/// Between two columns.
const GAP: &str = "  ";

/// Rows under headings. The last column takes what room is left.
///
/// What is to be pasted into the next command is never cut: where whole ids leave too little room for the rest, the first of
/// them has a line of its own, and the rest stands below it.
pub(crate) struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
    /// Set if only the last column gives way.
    last: Option<Last>,
}

/// What becomes of a text in the last column that is longer than its room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Last {
    /// It goes on below itself.
    Folded,
    Cut,
}

impl Table {
    pub(crate) fn new(headings: &'static [&'static str]) -> Self {
        Self { headings: headings.to_vec(), rows: Vec::new(), last: None }
    }

    /// The same, with all columns whole but the last one. Where they leave it too little room, a row takes several lines.
    pub(crate) fn whole_but(mut self, last: Last) -> Self {
        self.last = Some(last);
        self
    }

    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells.into_iter().map(|cell| line::clean(&cell)).collect());
    }

    /// Without those of these columns in which no row has anything.
    pub(crate) fn without_unused(mut self, headings: &[&str]) -> Self {
        for at in (0..self.headings.len()).rev() {
            if headings.contains(&self.headings[at]) && self.rows.iter().all(|row| row[at].is_empty()) {
                self.headings.remove(at);
                for row in &mut self.rows {
                    row.remove(at);
                }
            }
        }
        self
    }

    /// The lines; none is wider than `width`, if there is one, but for ids that are.
    pub(crate) fn lines(&self, width: Option<usize>) -> Vec<String> {
        self.drawn(width, false)
    }

    /// The same with colours of a terminal: headings faint, states as in the live tree.
    pub(crate) fn coloured(&self, width: Option<usize>) -> Vec<String> {
        self.drawn(width, true)
    }

    fn drawn(&self, width: Option<usize>, colours: bool) -> Vec<String> {
        let mut widths: Vec<usize> = self.headings.iter().map(|heading| heading.len()).collect();
        for row in &self.rows {
            for (cell, width) in row.iter().zip(&mut widths) {
                *width = (*width).max(line::columns(cell));
            }
        }
        if let (Some(width), Some(last)) = (width, self.last) {
            return self.flowing(&widths, width, last, colours);
        }
        if let Some(width) = width {
            let fits = shrink(&mut widths, &self.headings, width);
            if !fits && self.headings.len() > 1 && is_kept(&self.headings, 0) {
                return self.stacked(width, colours);
            }
        }
        // As far as the last id goes, and a mark behind it.
        let ids =
            (0..self.headings.len()).rfind(|at| is_kept(&self.headings, *at)).map_or(0, |last| last + 1);
        let least = widths[..ids].iter().map(|wide| wide + GAP.len()).sum();
        let width = width.map(|width| width.max(least));
        let headings = self.headings.iter().map(|heading| (*heading).to_owned()).collect();
        let all = std::iter::once(&headings).chain(&self.rows);
        let lines = all.enumerate().map(|(at, row): (usize, &Vec<String>)| {
            let padded =
                row.iter().zip(&widths).map(|(cell, width)| line::pad(&line::cut(cell, *width), *width));
            let joined = padded.collect::<Vec<_>>().join(GAP);
            let joined = joined.trim_end();
            let joined = width.map_or_else(|| joined.to_owned(), |width| line::cut(joined, width));
            match (colours, at) {
                (false, _) => joined,
                (true, 0) => format!("{FAINT}{joined}{PLAIN}"),
                (true, _) => self.with_state(&joined, row, &widths),
            }
        });
        lines.collect()
    }

    /// The lines with the first column above the others.
    fn stacked(&self, width: usize, colours: bool) -> Vec<String> {
        let rows = self.rows.iter().map(|row| row[1..].to_vec()).collect();
        let rest = Self { headings: self.headings[1..].to_vec(), rows, last: None };
        let rest = rest.drawn(Some(width.saturating_sub(GAP.len())), colours);
        let heading =
            if colours { format!("{FAINT}{}{PLAIN}", self.headings[0]) } else { self.headings[0].to_owned() };
        let firsts = std::iter::once(heading).chain(self.rows.iter().map(|row| row[0].clone()));
        let lines = firsts.zip(rest).flat_map(|(first, rest)| [first, format!("{GAP}{rest}")]);
        lines.filter(|line| !line.trim().is_empty()).collect()
    }

    /// The lines with every column whole but the last. Columns that do not fit beside the others stand below them.
    fn flowing(&self, widths: &[usize], width: usize, last: Last, colours: bool) -> Vec<String> {
        let end = widths.len().saturating_sub(1);
        let mut starts = vec![0];
        let mut used = 0;
        for (at, wide) in widths.iter().enumerate() {
            let needed = if at == end { (*wide).min(LAST_MIN) } else { *wide };
            let gap = if at == 0 { 0 } else { GAP.len() };
            if at > 0 && used + gap + needed > width {
                starts.push(at);
                used = gap + needed;
            } else {
                used += gap + needed;
            }
        }
        let headings: Vec<_> = self.headings.iter().map(|heading| (*heading).to_owned()).collect();
        let mut lines = Vec::new();
        for (number, row) in std::iter::once(&headings).chain(&self.rows).enumerate() {
            for (nth, start) in starts.iter().enumerate() {
                let until = starts.get(nth + 1).copied().unwrap_or(widths.len());
                let mut text = if nth == 0 { String::new() } else { GAP.to_owned() };
                for at in *start..until {
                    if at > *start {
                        text += GAP;
                    }
                    if at < end {
                        text += &line::pad(&row[at], widths[at]);
                        continue;
                    }
                    let before = line::columns(&text);
                    let room = width.saturating_sub(before).max(1);
                    match last {
                        Last::Cut => text += &line::cut(&row[at], room),
                        Last::Folded => {
                            text += &fold(&row[at], 0, room).replace('\n', &format!("\n{:before$}", ""));
                        }
                    }
                }
                let told = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
                lines.extend(told.map(|line| match (colours, number) {
                    (true, 0) => format!("{FAINT}{line}{PLAIN}"),
                    _ => line.to_owned(),
                }));
            }
        }
        lines
    }

    /// A line whose state has its colour. All before it is as wide as its columns, so its place is known.
    fn with_state(&self, text: &str, row: &[String], widths: &[usize]) -> String {
        let Some(at) = self.headings.iter().position(|heading| STATES.contains(heading)) else {
            return text.to_owned();
        };
        let (Some(state), before) = (row.get(at), widths[..at].iter().map(|wide| wide + GAP.len()).sum())
        else {
            return text.to_owned();
        };
        let mut used = 0;
        let start = text.char_indices().find(|(_, c)| {
            let is_there = used >= before;
            used += line::columns_of(*c);
            is_there
        });
        let Some((start, _)) = start else { return text.to_owned() };
        match (colour_of(state), text[start..].strip_prefix(state.as_str())) {
            (Some(colour), Some(rest)) => format!("{}{colour}{state}{PLAIN}{rest}", &text[..start]),
            _ => text.to_owned(),
        }
    }
}

/// Headings of columns that hold a state.
const STATES: [&str; 2] = ["STATUS", "STATE"];
const FAINT: &str = "\x1b[2m";
const PLAIN: &str = "\x1b[0m";

/// The colour of a state; most have none.
fn colour_of(state: &str) -> Option<&'static str> {
    Some(match state {
        "completed" | "success" | "resolved" | "replayed" => "\x1b[32m",
        "failed" | "failing" | "open" | "exhausted" => "\x1b[31m",
        "running" | "processing" => "\x1b[36m",
        "parked" | "retrying" | "pending" => "\x1b[33m",
        "waiting" | "cancelled" | "discarded" | "ignored" => FAINT,
        _ => return None,
    })
}

/// Headings of columns that hold what other commands take.
const IDS: [&str; 6] = ["ID", "JOB", "TASK", "EXECUTION", "CODE", "CODES"];

/// Headings that hold it if they come first.
const NAMES: [&str; 2] = ["NAME", "FILE"];

/// Whether a column is never cut.
fn is_kept(headings: &[&str], at: usize) -> bool {
    IDS.contains(&headings[at]) || (at == 0 && NAMES.contains(&headings[at]))
}

/// The last column has a line of its own where there is less room for it.
const LAST_MIN: usize = 24;

/// A column is not made narrower than its heading, nor than the first of these; if that is too little, than the second.
const COLUMN_MIN: [usize; 2] = [12, 8];

/// Takes columns from the widest until all of them fit, as far as they can be made narrower. Ids stay as they are. False: they
/// do not fit.
fn shrink(widths: &mut [usize], headings: &[&str], width: usize) -> bool {
    let gaps = GAP.len() * widths.len().saturating_sub(1);
    let mut over = (widths.iter().sum::<usize>() + gaps).saturating_sub(width);
    for least in COLUMN_MIN {
        while over > 0 {
            let can = widths
                .iter()
                .enumerate()
                .filter(|(at, wide)| !is_kept(headings, *at) && **wide > least.max(headings[*at].len()));
            let Some((at, _)) = can.max_by_key(|(_, wide)| **wide) else { break };
            widths[at] -= 1;
            over -= 1;
        }
    }
    over == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_that_no_row_uses_are_left_out_if_they_may_be() {
        let table = |place: &str| {
            let mut table = Table::new(&["ID", "PLACE", "STATE", "GROUP"]);
            table.row(vec!["a".into(), String::new(), String::new(), "g".into()]);
            table.row(vec!["b".into(), place.into(), String::new(), String::new()]);
            table.without_unused(&["PLACE", "GROUP"]).lines(None)
        };
        assert_eq!(table(""), ["ID  STATE  GROUP", "a          g", "b"]);
        assert_eq!(table("EU"), ["ID  PLACE  STATE  GROUP", "a                 g", "b   EU"]);
    }

    #[test]
    fn columns_are_aligned_and_cut_at_the_width() {
        let mut table = Table::new(&["AT", "STATE", "ERROR"]);
        table.row(vec!["a".into(), "completed".into(), String::new()]);
        table.row(vec!["long-id".into(), "failed".into(), "one\ntwo".into()]);
        assert_eq!(
            table.lines(None),
            ["AT       STATE      ERROR", "a        completed", "long-id  failed     one two"]
        );
        assert_eq!(table.lines(Some(14))[2], "long-id  fail…");
    }

    #[test]
    fn states_have_colours_where_they_are_wanted() {
        let mut table = Table::new(&["ID", "STATE", "ERROR"]);
        table.row(vec!["failed".into(), "failed".into(), "failed".into()]);
        table.row(vec!["b".into(), "strange".into(), String::new()]);
        assert_eq!(
            table.coloured(Some(80)),
            [
                "\x1b[2mID      STATE    ERROR\x1b[0m",
                "failed  \x1b[31mfailed\x1b[0m   failed",
                "b       strange"
            ]
        );
        assert!(table.lines(Some(80)).iter().all(|line| !line.contains('\x1b')));
    }

    #[test]
    fn wide_columns_give_way_so_that_all_are_seen() {
        let mut table = Table::new(&["JOB", "STATUS", "ERROR"]);
        table.row(vec![
            "job-01a1b2c3d4e5f60718293a4b5c6d7e8f".into(),
            "failed".into(),
            "exit status 1 of the program".into(),
        ]);
        assert_eq!(
            table.lines(Some(64))[1],
            "job-01a1b2c3d4e5f60718293a4b5c6d7e8f  failed  exit status 1 of …"
        );
        assert!(table.lines(Some(80))[1].ends_with("of the program"));
    }

    #[test]
    fn only_the_last_column_gives_way_where_all_others_are_to_be_whole() {
        let table = |last| {
            let mut table = Table::new(&["TIME", "ENTITY", "WHAT"]).whole_but(last);
            table.row(vec!["12:00".into(), "TASK/a".into(), "one two three four five six seven".into()]);
            table.row(vec!["12:01".into(), "TASK/long".into(), String::new()]);
            table
        };
        assert_eq!(table(Last::Cut).lines(Some(80)), table(Last::Folded).lines(None));
        assert_eq!(
            table(Last::Cut).lines(Some(46)),
            ["TIME   ENTITY     WHAT", "12:00  TASK/a     one two three four five six…", "12:01  TASK/long"]
        );
        let folded = "12:00  TASK/a     one two three four five six";
        assert_eq!(table(Last::Folded).lines(Some(46))[1..3], [folded, "                  seven"]);
        let narrow = ["TIME   ENTITY", "  WHAT", "12:00  TASK/a", "  one two three four five six", "  seven"];
        assert_eq!(table(Last::Folded).lines(Some(30))[..5], narrow);
        assert_eq!(table(Last::Folded).lines(Some(30))[5..], ["12:01  TASK/long"]);
        assert_eq!(table(Last::Cut).coloured(Some(80))[0], "\x1b[2mTIME   ENTITY     WHAT\x1b[0m");
    }

    #[test]
    fn names_that_other_commands_take_are_never_cut() {
        let mut table = Table::new(&["NAME", "VERSION", "WHAT"]);
        table.row(vec!["one-definition-of-many".into(), "1".into(), "what it does in words".into()]);
        assert_eq!(table.lines(Some(44))[1], "one-definition-of-many  1        what it do…");
    }

    #[test]
    fn ids_are_never_cut() {
        let id = "job-01a1b2c3d4e5f60718293a4b5c6d7e8f_fetch";
        let mut table = Table::new(&["EXECUTION", "STATE", "CODE", "WHAT"]);
        table.row(vec![id.into(), "open".into(), "997c2ad3ec185be1de".into(), "it broke there".into()]);
        table.row(vec!["a".into(), String::new(), String::new(), String::new()]);
        assert_eq!(table.lines(Some(80))[1], format!("{id}  open   997c2ad3ec185be1de  it broke…"));
        // The first one has a line of its own where there is no room for the rest.
        let narrow = ["EXECUTION", "  STATE  CODE                WHAT", id];
        let narrow = narrow.map(str::to_owned).to_vec();
        let rest = ["  open   997c2ad3ec185be1de  it broke there", "a"].map(str::to_owned).to_vec();
        assert_eq!(table.lines(Some(60)), [narrow, rest].concat());
        let coloured = table.coloured(Some(60));
        assert_eq!(coloured[3], "  \x1b[31mopen\x1b[0m   997c2ad3ec185be1de  it broke there");
        // On the narrowest screen they stay whole as well, and all else gives way.
        assert_eq!(table.lines(Some(20))[3], "  open   997c2ad3ec185be1de …");
    }
}
