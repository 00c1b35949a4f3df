//! `tidemill export` of a stage.

use std::io::{self, Write};

use tidemill_embedded::store::watch::Progress;
use tidemill_engine::export::Exported;
use tokio::runtime::Runtime;

use super::{Purpose, Stage};
use crate::commands::{CommandError, runtime_with_threads};
use crate::config::Resolved;

/// A stage that is open to be exported.
pub(crate) struct ExportedStage {
    stage: Stage,
    // Dropped last: what the stage runs in the background ends with it.
    runtime: Runtime,
}

/// Counts the lines on their way out.
struct Counted<'a> {
    data: &'a mut (dyn Write + Send),
    watch: &'a mut (dyn FnMut(Progress) + Send),
    lines: u64,
}

impl ExportedStage {
    pub(crate) fn open(config: &Resolved) -> Result<Self, CommandError> {
        let runtime = runtime_with_threads()?;
        let stage = runtime.block_on(Box::pin(Stage::open(config, Purpose::Asking)))?;
        Ok(Self { stage, runtime })
    }

    pub(crate) fn export(
        &mut self,
        data: &mut (dyn Write + Send),
        watch: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Exported, CommandError> {
        let mut counted = Counted { data, watch, lines: 0 };
        let export = self.stage.node.engine().backend().export(&mut counted);
        Ok(self.runtime.block_on(Box::pin(export))?)
    }
}

impl Write for Counted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.data.write(bytes)?;
        self.lines += bytes[..written].split(|byte| *byte == b'\n').count() as u64 - 1;
        (self.watch)(Progress { step: "writing lines", done: self.lines, total: None });
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.data.flush()
    }
}
