//! What goes into a prompt and what must come out: the input, templates, values made safe, schemas.

pub(crate) mod input;
pub(crate) mod prompt;
pub(crate) mod prompt_input;
pub(crate) mod schema;
