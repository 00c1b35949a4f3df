//! What people write by hand: YAML or JSON, read into a tree that knows the place of every value.
//!
//! The reader knows nothing of jobs or settings. Whoever gives a meaning to a document names a field by its path
//! (`tasks[2].timeout`), and the document says where that is. It never panics, whatever the bytes are.

mod json;
mod node;
mod place;
mod problem;
mod scalar;
mod text;
mod yaml;

pub use node::{Entry, Kind, Node};
pub use place::Place;
pub use problem::{FileProblem, FileProblems};
pub use text::{DEPTH_MAX, Document, FILE_BYTES_MAX, Form, PROBLEMS_MAX};
