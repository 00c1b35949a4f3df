//! A large value as lines, in parts.

use std::io::{self, Write};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use tidemill_model::TenantId;

use crate::export::{ExportTally, Lines, PART_BYTES, line};

impl<W: Write> Lines<W> {
    pub fn put_blob(
        &mut self,
        tenant_id: &TenantId,
        key: &str,
        bytes: &[u8],
        tally: &mut ExportTally,
    ) -> io::Result<()> {
        tally.blobs += 1;
        let mut parts = bytes.chunks(PART_BYTES).peekable();
        loop {
            let part = BASE64.encode(parts.next().unwrap_or_default());
            let more = parts.peek().is_some();
            self.put(&line::BlobLine { kind: "blob", tenant_id, key, bytes: part, more })?;
            if !more {
                return Ok(());
            }
        }
    }
}
