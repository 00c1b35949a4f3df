//! Where a value came from that somebody gave.

use std::fmt;

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
