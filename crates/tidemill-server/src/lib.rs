//! The HTTP API: routes, keys, limits, live streams, OpenAPI.
//!
//! One table of routes (`routes`) says everything about every endpoint; the router, the checks and the document are made
//! from it. Handlers take checked input, call one function of the engine and map the result. Inner crates know nothing
//! of HTTP: `error_map` alone turns their errors into answers.

mod admission;
mod app;
mod claims;
mod config;
mod connection;
mod dashboard;
mod docs_page;
mod error_map;
mod gateway;
mod metrics;
mod openapi;
mod problem;
mod request;
mod route;
mod router;
mod routes;
mod server_address;
mod stream;
mod views;
mod workers;

use tidemill_api as api;

pub use admission::caller::Caller;
pub use app::App;
pub use config::ServerConfig;
pub use connection::{ServeError, check_listen, serve};
pub use gateway::GatewayNames;
pub use metrics::{METRICS_TEXT, worker_metrics};
pub use request::given_job::GivenJob;
pub use request::job_text::{JobTextReader, TextPlace, TextProblem, WrittenJob};
pub use router::router;
pub use routes::openapi_document;
