//! Where rendered text goes: into a string, or only into a count of its bytes.
//!
//! One renderer serves both, so a length that was counted is the length that is written.

/// Takes text piece by piece.
pub(crate) trait Sink {
    fn put(&mut self, text: &str);
}

impl Sink for String {
    fn put(&mut self, text: &str) {
        self.push_str(text);
    }
}

/// Counts bytes and keeps none.
#[derive(Debug, Default)]
pub(crate) struct ByteCount(pub(crate) usize);

impl Sink for ByteCount {
    fn put(&mut self, text: &str) {
        self.0 += text.len();
    }
}
