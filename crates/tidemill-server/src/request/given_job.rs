//! A job that was read before it is submitted.

use tidemill_model::JobFile;

/// A job that a caller in this process has read and checked. Put into the extensions of a request to `POST /v1/jobs`, it stands
/// for the body, which would only be written to be read again. No connection can bring one.
#[derive(Debug, Clone)]
pub struct GivenJob(pub JobFile);
