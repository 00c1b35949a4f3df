//! The dashboard: pages for people, made on the server.
//!
//! Every page asks the API's own routes in this process, as the caller that the session stands for. So roles, tenants,
//! limits and answers are those of the API, and a page cannot show what the API would not say. What a page shows live is
//! the same page rendered again: see `live`.
//!
//! To add a page, write one file in `pages` and name it in `pages/mod.rs`.

mod asset;
mod chart;
mod cookie;
mod door;
mod form;
mod gantt;
mod graph;
mod graph_svg;
mod inside;
mod layout;
mod live;
mod mount;
mod pace;
mod pages;
mod pulse;
mod screen;
mod session;
mod visit;
mod widgets;

pub(crate) use mount::mount;
