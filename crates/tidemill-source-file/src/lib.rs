//! Files that people write by hand: YAML or JSON, read into a tree that knows the place of every value.
//!
//! The reader knows nothing of jobs or settings. A caller that gives a meaning to a document names a field by its path
//! (`tasks[2].timeout`), and the document says where that is. [`job_file`] does so for jobs. Nothing here panics, whatever the
//! bytes are.

pub mod job_file;
mod json;
mod node;
mod position;
mod problem;
mod scalar;
mod text;
mod yaml;

pub use node::{SourceEntry, SourceKind, SourceNode};
pub use position::TextPosition;
pub use problem::{FileProblem, FileProblems};
pub use text::{DEPTH_MAX, FILE_BYTES_MAX, Form, PROBLEMS_MAX, SourceFile};
