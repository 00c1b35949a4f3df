//! `tidemill config`: what is set, and where.

use std::process::ExitCode;

use clap::Args;
use serde_json::{Map, Value, json};

use super::{Ended, Flags};
use crate::client::ReachArguments;
use crate::config::{Kind, Resolved, Setting, Source, Use};
use crate::display::{Last, Table};
use crate::output::Output;

/// Show the effective settings and where each comes from
///
/// A flag goes before the environment, before .env, before tidemill.STAGE.yaml, before tidemill.yaml, before the default.
/// Secrets are not shown.
#[derive(Args)]
#[command(after_help = crate::EXIT_CODES)]
pub(crate) struct Config {
    #[command(flatten)]
    reach: ReachArguments,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

const HIDDEN: &str = "[REDACTED]";
const DEFAULT: &str = "default";

impl Config {
    pub(crate) fn flags(&self) -> Flags {
        self.reach.flags()
    }

    pub(crate) fn execute(self, config: &Resolved, out: &mut Output) -> Ended {
        if self.json {
            let mut settings = Map::new();
            for (setting, source) in &config.shown {
                let entry = entry(setting, source.as_ref());
                // A reader that looks for it by another name finds it too.
                for alias in setting.aliases {
                    let mut same = entry.clone();
                    same["aliasOf"] = json!(setting.name);
                    settings.insert((*alias).to_owned(), same);
                }
                settings.insert(setting.name.to_owned(), entry);
            }
            out.json_pretty(&settings)?;
            return Ok(ExitCode::SUCCESS);
        }
        let mut table = Table::new(&["NAME", "VALUE", "FROM", "WHAT IT IS"]).whole_but(Last::Folded);
        for (setting, source) in &config.shown {
            let value = shown(setting, source.as_ref()).unwrap_or_else(|| "-".to_owned());
            let used = match setting.used {
                Use::Now => "",
                Use::Never => " (ignored)",
            };
            table.row(vec![
                setting.name.to_owned(),
                value,
                source.as_ref().map_or_else(|| DEFAULT.to_owned(), Source::place),
                format!("{}{}{used}", setting.about, also(setting)),
            ]);
        }
        out.table(&table)?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The value as it may be shown.
fn shown(setting: &Setting, source: Option<&Source>) -> Option<String> {
    let value = source.map(|source| source.value.clone()).or_else(|| setting.default.map(str::to_owned))?;
    Some(match setting.kind {
        _ if setting.secret => HIDDEN.to_owned(),
        Kind::Url => without_user(&value),
        _ => value,
    })
}

/// A URL whose user and password, if it has them, are not shown.
fn without_user(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let host_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..host_end].rfind('@') {
        Some(at) => format!("{scheme}://{HIDDEN}{}", &rest[at..]),
        None => url.to_owned(),
    }
}

fn also(setting: &Setting) -> String {
    if setting.aliases.is_empty() { String::new() } else { format!("; also {}", setting.aliases.join(", ")) }
}

fn entry(setting: &Setting, source: Option<&Source>) -> Value {
    json!({
        "value": shown(setting, source),
        "origin": source.map_or_else(|| DEFAULT.to_owned(), |source| source.origin.to_string()),
        // The name that it was given under.
        "name": source.map(|source| source.alias.unwrap_or(setting.name)),
        "aliases": setting.aliases,
        "used": setting.used == Use::Now,
        "about": setting.about,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_in_an_address_is_not_shown() {
        for (url, shown) in [
            ("http://ann:hush@host:7070/x", "http://[REDACTED]@host:7070/x"),
            ("https://a:b@c@host", "https://[REDACTED]@host"),
            ("https://token@host", "https://[REDACTED]@host"),
            ("http://host:7070/a@b", "http://host:7070/a@b"),
            ("http://host", "http://host"),
        ] {
            assert_eq!(without_user(url), shown);
        }
    }
}
