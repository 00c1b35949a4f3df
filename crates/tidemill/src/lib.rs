//! Tidemill as a library: the engine and its workers inside your own program.
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use tidemill::{Handlers, Host, HostOptions, Json};
//!
//! let handlers = Handlers::new().on("greet", |task| async move { Ok(task.input) })?;
//! let host = Host::open("data".as_ref(), handlers, HostOptions::default()).await?;
//! let job = host.submit("hello", vec![tidemill::task("one", "greet", &[])?]).await?;
//! println!("{}", host.wait(job).await?.as_str());
//! host.shut_down().await;
//! # Ok(())
//! # }
//! ```

pub mod host;

pub use host::{Host, HostError, HostOptions, task};
pub use tidemill_embedded::{Embedded, OpenError, StoreOptions};
pub use tidemill_engine::engine::{EngineError, JobRequest, SubmittedJob};
pub use tidemill_model::{
    ErrorCategory, JobId, JobStatus, Json, RetryPolicy, TaskId, TaskName, TaskOptions, TaskSpec,
};
pub use tidemill_worker::{Handlers, TaskContext, TaskError};

/// The engine on the embedded backend.
pub type EmbeddedEngine = tidemill_engine::engine::Engine<Embedded>;
