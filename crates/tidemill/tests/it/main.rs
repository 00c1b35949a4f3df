//! End-to-end tests: the library with real handlers, and the binary as users run it.

#![expect(clippy::unwrap_used, reason = "a helper that fails, fails its test")]

mod agent;
mod agent_cli;
mod agent_secrets;
mod auto_repair;
#[cfg(feature = "aws")]
mod aws;
mod bodies;
mod browser;
mod browser_axe;
mod browser_chromium;
mod browser_pages;
mod changed_file;
mod command_line;
mod config;
mod daily_use;
mod diamonds;
mod doc_examples;
mod doc_links;
mod docs_page;
mod failures;
mod fake_claude;
mod few_files;
mod files_between;
mod foreign_user;
mod freezes;
mod full_disk;
mod health;
mod host;
mod keys;
mod logs;
mod names;
mod neutral_words;
mod offline;
mod outbound;
mod parking;
#[path = "../../../tidemill-embedded/tests/it/parts.rs"]
mod parts;
mod privacy;
mod remote_worker;
mod run;
mod run_signals;
mod sandbox;
mod screen_80;
mod script_routing;
mod scripts;
mod serve;
mod stories;
mod terminal;
#[path = "../../../tidemill-embedded/tests/it/tmpfs.rs"]
mod tmpfs;
mod traces;
mod triage;
mod troubles;
mod usage;
mod walls;
mod what_ran;
