//! How far a long piece of work is, for people who wait at a terminal.

/// A look at a piece of work that goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// What is being done, such as `reading events`.
    pub step: &'static str,
    pub done: u64,
    /// How much there is, if that is known.
    pub total: Option<u64>,
}

/// Gets the progress. Called often; it must be quick.
pub type Watch<'a> = dyn FnMut(Progress) + 'a;

/// How many items lie between two calls.
const STRIDE: u64 = 1_024;

/// Counts the items of one step and tells now and then.
pub(crate) struct Step<'w, 'a> {
    watch: &'w mut Watch<'a>,
    progress: Progress,
}

impl<'w, 'a> Step<'w, 'a> {
    pub(crate) fn begin(watch: &'w mut Watch<'a>, step: &'static str, total: Option<u64>) -> Self {
        let progress = Progress { step, done: 0, total };
        watch(progress);
        Self { watch, progress }
    }

    pub(crate) fn tick(&mut self) {
        self.progress.done += 1;
        if self.progress.done.is_multiple_of(STRIDE) {
            (self.watch)(self.progress);
        }
    }

    /// Tells the last number.
    pub(crate) fn end(self) -> u64 {
        (self.watch)(self.progress);
        self.progress.done
    }
}

/// Nobody watches.
pub(crate) fn unwatched(_: Progress) {}
