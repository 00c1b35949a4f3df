//! What a page shows: pieces, some of which are sent again when they change.

use std::hash::{DefaultHasher, Hash, Hasher};

use maud::Markup;
use tidemill_model::{JobId, RequestId};

/// A page between its head and its foot.
pub(super) struct Screen {
    pub(super) title: String,
    /// The entry of the navigation that it belongs to.
    pub(super) nav: &'static str,
    pub(super) pieces: Vec<Piece>,
    pub(super) watch: Watch,
    /// Whether something is still being counted: then it is made again soon, whether there are events or not.
    pub(super) is_partial: bool,
    /// Whether it shows what became of deliveries.
    pub(super) shows_letters: bool,
}

/// Which events may change a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Watch {
    Nothing,
    Tenant,
    Job(JobId),
    Task(RequestId),
}

/// A part of a page with a name of its own.
pub(super) struct Piece {
    pub(super) id: &'static str,
    pub(super) html: Markup,
    /// Whether it is sent again when it changed. What people type into must stay as it is.
    pub(super) is_live: bool,
    /// For a large piece: what its marks stand on. While it stays, only marks that changed are sent.
    pub(super) shape: Option<u64>,
    /// States of elements within it, by the elements' ids.
    pub(super) marks: Vec<(String, &'static str)>,
}

impl Screen {
    pub(super) fn new(nav: &'static str, title: impl Into<String>) -> Self {
        let (title, watch) = (title.into(), Watch::Nothing);
        Self { title, nav, pieces: Vec::new(), watch, is_partial: false, shows_letters: false }
    }

    pub(super) fn watching(mut self, watch: Watch) -> Self {
        self.watch = watch;
        self
    }

    pub(super) fn partial(mut self, is_partial: bool) -> Self {
        self.is_partial = is_partial;
        self
    }

    /// It is made again when something becomes of a delivery, too.
    pub(super) fn with_letters(mut self) -> Self {
        self.shows_letters = true;
        self
    }

    /// Adds a piece that is kept up to date.
    pub(super) fn live(mut self, id: &'static str, html: Markup) -> Self {
        self.pieces.push(Piece { id, html, is_live: true, shape: None, marks: Vec::new() });
        self
    }

    /// Adds a piece that stays as it is.
    pub(super) fn still(mut self, id: &'static str, html: Markup) -> Self {
        self.pieces.push(Piece { id, html, is_live: false, shape: None, marks: Vec::new() });
        self
    }

    /// Adds a large piece whose states change more often than its shape.
    pub(super) fn marked(
        mut self,
        id: &'static str,
        html: Markup,
        shape: u64,
        marks: Vec<(String, &'static str)>,
    ) -> Self {
        self.pieces.push(Piece { id, html, is_live: true, shape: Some(shape), marks });
        self
    }
}

impl Piece {
    /// A number that differs when the piece has to be sent whole.
    pub(super) fn fingerprint(&self) -> u64 {
        self.shape.unwrap_or_else(|| fingerprint(&self.html.0))
    }
}

pub(super) fn fingerprint(value: &(impl Hash + ?Sized)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
