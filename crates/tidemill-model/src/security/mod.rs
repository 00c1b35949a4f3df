//! Who may do what, and what must not be shown: API keys, secrets, texts that are made safe.

pub mod api_key;
pub mod sanitize;
pub mod secrets;
pub mod text_direction;
