//! A block of lines at the bottom of a terminal that is drawn again and again.

use std::io::{self, Write};
use std::os::fd::AsFd;

use super::line;

/// Rows and columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) rows: usize,
    pub(crate) columns: usize,
}

/// The size of the terminal behind a file, if there is one.
pub(crate) fn size_of(file: &impl AsFd) -> Option<Size> {
    let size = rustix::termios::tcgetwinsize(file).ok()?;
    // A terminal that does not know its size says 0.
    let known = |number: u16, otherwise: usize| if number == 0 { otherwise } else { usize::from(number) };
    Some(Size { rows: known(size.ws_row, 24), columns: known(size.ws_col, 80) })
}

/// Draws over what it drew before. The cursor is hidden meanwhile and comes back when this is dropped.
pub(crate) struct Block<W: Write> {
    out: W,
    /// The columns that each line of the last drawing took.
    drawn: Vec<usize>,
    hidden: bool,
}

impl<W: Write> Block<W> {
    pub(crate) fn new(out: W) -> Self {
        Self { out, drawn: Vec::new(), hidden: false }
    }

    /// Replaces the block. Lines may hold colours and must fit into the columns.
    pub(crate) fn draw(&mut self, lines: &[String], size: Size) -> io::Result<()> {
        let mut frame = String::new();
        if !self.hidden {
            frame.push_str("\x1b[?25l");
            self.hidden = true;
        }
        frame.push_str(&self.back(size));
        self.drawn.clear();
        for text in lines {
            frame.push_str(text);
            frame.push_str("\x1b[K\r\n");
            self.drawn.push(line::columns(&line::clean(text)));
        }
        // What is below belonged to a longer block.
        frame.push_str("\x1b[J");
        self.out.write_all(frame.as_bytes())?;
        self.out.flush()
    }

    /// Writes lines above the block, which must be drawn again.
    pub(crate) fn print(&mut self, text: &str, size: Size) -> io::Result<()> {
        let back = self.back(size);
        self.drawn.clear();
        write!(self.out, "{back}\x1b[J{text}\r\n")
    }

    /// Leaves the last drawing where it is.
    pub(crate) fn leave(&mut self) -> io::Result<()> {
        self.drawn.clear();
        if std::mem::take(&mut self.hidden) {
            self.out.write_all(b"\x1b[?25h")?;
        }
        self.out.flush()
    }

    /// To the first row of the last drawing. A terminal that became narrower has wrapped its lines.
    fn back(&self, size: Size) -> String {
        let columns = size.columns.max(1);
        let rows: usize = self.drawn.iter().map(|width| width.div_ceil(columns).max(1)).sum();
        match rows {
            0 => "\r".to_owned(),
            rows => format!("\r\x1b[{rows}A"),
        }
    }
}

impl<W: Write> Drop for Block<W> {
    fn drop(&mut self) {
        let _ = self.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_drawn_over_itself_and_the_cursor_comes_back() {
        let mut out = Vec::new();
        {
            let mut block = Block::new(&mut out);
            let wide = Size { rows: 24, columns: 10 };
            block.draw(&["0123456789".into(), "a".into()], wide).unwrap();
            // Half as wide: the first line takes two rows now.
            block.draw(&["b".into()], Size { rows: 24, columns: 5 }).unwrap();
            block.draw(&["c".into()], wide).unwrap();
        }
        let expected = "\x1b[?25l\r0123456789\x1b[K\r\na\x1b[K\r\n\x1b[J\r\x1b[3Ab\x1b[K\r\n\x1b[J\r\x1b[1Ac\x1b[K\r\n\x1b[J\x1b[?25h";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }
}
