//! A script as users write it, and what is wrong with one that does not compile.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::engine::compiler::compile_script;
use crate::limits::{NAME_CHARS_MAX, SOURCE_BYTES_MAX};

/// The body of a function that sees `ctx`, under the name that its stacks show.
///
/// It may not compile: `compile` and `Pool::compile` tell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptSource {
    name: String,
    source: String,
    version: Version,
}

/// Names a script's source and name by what they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Version(pub(crate) [u8; 32]);

/// Where and why a script does not compile. Lines and columns count from 1 in the script's own source.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{message} (line {line}, column {column})")]
pub struct CompileError {
    pub message: String,
    pub line: u32,
    pub column: u32,
}

impl CompileError {
    /// An error of the script as a whole.
    pub(crate) fn unplaced(message: &str) -> Self {
        Self { message: message.to_owned(), line: 1, column: 1 }
    }
}

impl ScriptSource {
    /// Takes a script that was compiled when it was saved. Its size and name are checked, nothing else.
    pub fn new(name: impl Into<String>, source: impl Into<String>) -> Result<Self, CompileError> {
        let (name, source) = (name.into(), source.into());
        if name.is_empty() || name.chars().count() > NAME_CHARS_MAX || name.chars().any(char::is_control) {
            return Err(CompileError::unplaced(&format!(
                "the name must have 1 to {NAME_CHARS_MAX} characters and no control characters"
            )));
        }
        if source.len() > SOURCE_BYTES_MAX {
            let size = source.len();
            return Err(CompileError::unplaced(&format!(
                "the source has {size} bytes; the limit is {SOURCE_BYTES_MAX}"
            )));
        }
        let mut hash = Sha256::new();
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(&name);
        hash.update(&source);
        let version = Version(hash.finalize().into());
        Ok(Self { name, source, version })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn source(&self) -> &str {
        &self.source
    }

    pub fn version(&self) -> Version {
        self.version
    }
}

/// Compiles a script in this process, to see whether it can be.
///
/// The parser is the engine's, and a server does not let it read what tenants write: it uses `Pool::compile`, which does
/// the same in a host.
pub fn compile(name: &str, source: &str) -> Result<ScriptSource, CompileError> {
    let script = ScriptSource::new(name, source)?;
    compile_script(&script)?;
    Ok(script)
}
