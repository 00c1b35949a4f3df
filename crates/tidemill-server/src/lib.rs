//! The HTTP API: routes, keys, limits, live streams, OpenAPI.
//!
//! One table of routes (`routes`) says everything about every endpoint; the router, the checks and the document are made
//! from it. Handlers take checked input, call one function of the engine and map the result. Inner crates know nothing
//! of HTTP: `error_map` alone turns their errors into answers.

mod app;
mod asked;
mod body;
mod body_budget;
mod caller;
mod claims;
mod config;
mod connection;
mod dashboard;
mod docs_page;
mod error_map;
mod given_job;
mod job_text;
mod json_body;
mod keyless;
mod lease_keys;
mod list_cursor;
mod login_guard;
mod metrics;
mod openapi;
mod param;
mod problem;
mod rate_limit;
mod route;
mod router;
mod routes;
mod server_address;
mod stream;
mod views;
mod workers;

use tidemill_api as api;

pub use app::App;
pub use caller::Caller;
pub use config::ServerConfig;
pub use connection::{ServeError, check_listen, serve};
pub use given_job::GivenJob;
pub use job_text::{JobTextReader, TextPlace, TextProblem, WrittenJob};
pub use metrics::{METRICS_TEXT, worker_metrics};
pub use router::router;
pub use routes::openapi_document;
