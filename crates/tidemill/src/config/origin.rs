//! Where a value came from that somebody gave.

use std::fmt;
use std::path::Path;

/// The file that is read when none is named, without its ending.
pub(super) const FILE_NAME: &str = "tidemill";
/// The variables that lie in the working directory.
pub(super) const ENV_FILE_NAME: &str = ".env";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A file and the line in it.
    File {
        name: String,
        line: u32,
        /// Nobody named it: it lies in the working directory.
        is_found: bool,
    },
    Environment,
    /// The flag's name with its dashes.
    Flag(&'static str),
    /// Nobody gave it; it is so in production.
    Production,
}

impl Origin {
    /// What comes from a lower one counts before what comes from a higher one.
    pub(super) fn rank(&self) -> u8 {
        match self {
            Self::Flag(_) => 0,
            Self::Environment => 1,
            Self::File { name, is_found: true, .. } if name == ENV_FILE_NAME => 2,
            // The file of all stages; otherwise that of one stage, or the only one.
            Self::File { name, .. } if Path::new(name).file_stem().is_some_and(|stem| stem == FILE_NAME) => 4,
            Self::File { .. } => 3,
            Self::Production => 5,
        }
    }

    /// The file, if nobody named it: it was read because it lies in the working directory.
    pub(crate) fn found_file(&self) -> Option<&str> {
        match self {
            Self::File { name, is_found: true, .. } => Some(name),
            _ => None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { name, line, .. } => write!(f, "{name}:{line}"),
            Self::Environment => f.write_str("environment"),
            Self::Flag(name) => f.write_str(name),
            Self::Production => f.write_str("default in prod"),
        }
    }
}
