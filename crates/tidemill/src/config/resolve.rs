//! Which value counts: a flag before the environment, before `.env`, before the file of the stage, before the file, before
//! the default.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::{Path, PathBuf};

use tidemill_model::authored::nearest::nearest;
use tidemill_model::{ErrorSanitizer, Secrets};
use tidemill_server::ServerConfig;
use tidemill_source_file::{Form, SourceFile, SourceKind, SourceNode};
use tracing_subscriber::filter::Targets;

use super::origin::{ENV_FILE_NAME, FILE_NAME, Origin};
use super::setting::{Kind, Setting, Use, names_secret};
use super::table::SETTINGS;
use super::values::Values;
use super::workflow::Workflows;
use super::{check, env_file, found_file};
use crate::logging;

/// The stages in which what is in production is so.
const PRODUCTION: [&str; 2] = ["prod", "production"];

/// Everything that is wrong, one line each: exit code 2.
#[derive(Debug)]
pub(crate) struct ConfigError(pub(crate) Vec<String>);

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

/// A value that somebody gave, by name.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    pub(crate) value: String,
    pub(crate) origin: Origin,
    /// The name it was given under, if that is another one than the setting's own.
    pub(crate) alias: Option<&'static str>,
}

impl Source {
    pub(crate) fn new(value: impl Into<String>, origin: Origin) -> Self {
        Self { value: value.into(), origin, alias: None }
    }

    /// Where it came from, and under which name if not its own.
    pub(crate) fn place(&self) -> String {
        match self.alias {
            None => self.origin.to_string(),
            Some(alias) => format!("{}, as {alias}", self.origin),
        }
    }
}

/// Everything that was given, before it is known what counts.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    pub(crate) flags: BTreeMap<&'static str, Source>,
    /// The real environment over `.env`.
    environment: BTreeMap<String, Source>,
    /// By canonical or other name.
    file: HashMap<String, Source>,
}

/// The checked values and where each came from.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub(crate) values: Values,
    pub(crate) workflows: Workflows,
    /// In the order of the table.
    pub(crate) shown: Vec<(&'static Setting, Option<Source>)>,
    pub(crate) warnings: Vec<String>,
    /// Environment and `.env` together, for workers.
    pub(crate) environment: BTreeMap<String, String>,
    /// Whether `.env` says where programs are.
    path_is_found: bool,
}

impl Resolved {
    /// Takes secrets out of error texts: the values of variables that sound like one, and the home directory.
    pub(crate) fn sanitizer(&self) -> ErrorSanitizer {
        let variables = self.environment.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let settings = self.shown.iter().filter_map(|(setting, source)| {
            let source = source.as_ref().filter(|_| setting.secret)?;
            Some((setting.name, source.value.as_str()))
        });
        let all = variables.chain(settings).map(|(name, value)| (name.as_bytes(), value.as_bytes()));
        ErrorSanitizer::with(Secrets::of_variables(all, names_secret), self.environment.get("HOME").cloned())
    }

    /// Which lines of the log are shown. `RUST_LOG` counts if nobody says `TIDEMILL_LOG`; what is not understood of it is for other
    /// programs. Without either, problems that the command answers with are left to its answer if `in_answer` says so.
    pub(crate) fn log_filter(&self, in_answer: bool) -> Targets {
        let own = self.given("TIDEMILL_LOG").map(|source| &source.value);
        let said = own.or_else(|| self.environment.get("RUST_LOG"));
        said.and_then(|text| logging::filter(text)).unwrap_or_else(|| logging::usual_filter(in_answer))
    }

    /// Whether colours are wanted: <https://no-color.org>. A terminal that calls itself dumb has none.
    pub(crate) fn colours(&self) -> bool {
        let is_dumb = self.environment.get("TERM").is_some_and(|term| term == "dumb");
        !is_dumb && self.environment.get("NO_COLOR").is_none_or(String::is_empty)
    }

    /// Where the name of a program comes from that nobody chose to trust: a file that lies in the working directory.
    pub(crate) fn found_program(&self, name: &str) -> Option<&Origin> {
        let origin = self.given(name).map(|source| &source.origin);
        origin.filter(|origin| origin.found_file().is_some())
    }

    /// Whether a file that lies in the working directory says where programs are.
    pub(crate) fn path_is_found(&self) -> bool {
        self.path_is_found
    }

    /// What somebody gave for a setting, if it is not the default that counts.
    pub(crate) fn given(&self, name: &str) -> Option<&Source> {
        let found = self.shown.iter().find(|(setting, _)| setting.name == name);
        found.and_then(|(_, source)| source.as_ref())
    }

    /// The server's part.
    pub(crate) fn server_config(&self) -> ServerConfig {
        let mut config = ServerConfig {
            tenant: self.values.tenant.clone(),
            app: self.values.app.clone(),
            catalogue: self.workflows.catalogue.clone(),
            task_secrets: self.values.task_secrets.clone(),
            gateway: self.values.gateway.clone(),
            ..ServerConfig::default()
        };
        if let Some(limit) = self.values.rate_limit {
            config.rate_per_second = limit;
        }
        config.tenant_rate_per_second = self.values.tenant_rate_limit;
        config.streams_per_tenant_max = self.values.tenant_streams_max;
        if let Some(limit) = self.values.connections_max {
            config.connections_max = limit;
        }
        if let Some(limit) = self.values.bodies_bytes_max {
            config.bodies_bytes_max = limit;
        }
        config
    }
}

impl Sources {
    /// Reads `.env` in `dir`, and `file` or the files beside it. The environment is given.
    pub(crate) fn read(
        dir: &Path,
        environment: impl IntoIterator<Item = (String, String)>,
        file: Option<&Path>,
        flags: BTreeMap<&'static str, Source>,
    ) -> Result<Self, ConfigError> {
        let mut sources = Self { flags, ..Self::default() };
        sources.read_env_file(&dir.join(ENV_FILE_NAME))?;
        for (name, value) in environment {
            sources.environment.insert(name, Source::new(value, Origin::Environment));
        }
        if let Some(path) = file {
            sources.read_file(path, path, false)?;
        } else {
            if let Some(name) = beside(dir, FILE_NAME)? {
                sources.read_file(&dir.join(&name), &name, true)?;
            }
            // What one stage has of its own goes over what all have.
            let stage = sources.given("NODE_ENV").map_or("dev", |source| &source.value);
            if let Some(name) = beside(dir, &format!("{FILE_NAME}.{stage}"))? {
                sources.read_file(&dir.join(&name), &name, true)?;
            }
        }
        Ok(sources)
    }

    fn read_env_file(&mut self, path: &Path) -> Result<(), ConfigError> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(one(format!("cannot read .env: {error}"))),
        };
        let lines =
            env_file::read(&text).map_err(|(line, problem)| one(format!(".env:{line}: {problem}")))?;
        for env_file::Line { name, value, number } in lines {
            let origin = Origin::File { name: ENV_FILE_NAME.to_owned(), line: number, is_found: true };
            self.environment.insert(name, Source::new(value, origin));
        }
        Ok(())
    }

    fn read_file(&mut self, path: &Path, shown: &Path, is_found: bool) -> Result<(), ConfigError> {
        let shown = shown.display().to_string();
        let bytes = std::fs::read(path).map_err(|error| one(format!("cannot read {shown}: {error}")))?;
        let document = SourceFile::read(&shown, Form::of(path, &bytes), &bytes);
        let document = document.map_err(|problems| ConfigError(lines(&problems)))?;
        let SourceKind::Map(entries) = &document.root.kind else {
            return Err(one(format!("{}", document.problem("", "must be a map of names and values"))));
        };
        let mut problems = Vec::new();
        for entry in entries {
            let (file, place) = (&shown, entry.place);
            if !names().any(|name| name == entry.key) {
                let hint = meant(&entry.key);
                problems
                    .push(format!("{file}:{place}: {}: there is no setting of this name{hint}", entry.key));
                continue;
            }
            match scalar(&entry.value) {
                Ok(Some(value)) => {
                    let origin = Origin::File { name: shown.clone(), line: place.line, is_found };
                    self.file.insert(entry.key.clone(), Source::new(value, origin));
                }
                Ok(None) => {}
                Err(NotSingle) => {
                    problems.push(format!("{file}:{place}: {}: must be a single value", entry.key));
                }
            }
        }
        if problems.is_empty() { Ok(()) } else { Err(ConfigError(problems)) }
    }

    /// What was given under one name, from wherever it counts most. An empty value is none.
    fn given(&self, name: &str) -> Option<&Source> {
        let flag = self.flags.get(name);
        let given = flag.or_else(|| self.environment.get(name).filter(|source| !source.value.is_empty()));
        given.or_else(|| self.file.get(name)).filter(|source| !source.value.is_empty())
    }

    /// Decides, checks, and tells all that is wrong at once.
    pub(crate) fn resolve(&self) -> Result<Resolved, ConfigError> {
        let mut problems = Vec::new();
        let mut warnings = Vec::new();
        let mut shown = Vec::new();
        let mut texts = HashMap::new();
        let stage = self.given("NODE_ENV").map_or("", |source| source.value.as_str());
        let is_prod = PRODUCTION.contains(&stage);
        for setting in SETTINGS {
            let source = self
                .settle(setting, &mut problems)
                .or_else(|| Some(Source::new(setting.in_prod.filter(|_| is_prod)?, Origin::Production)));
            if let Some(source) = &source {
                if let Err(expected) = setting.kind.check(&source.value) {
                    problems.push(wrong(setting, source, &expected));
                }
                if setting.used == Use::Never {
                    warnings.push(format!("{} ({}) has no effect", setting.name, source.place()));
                }
            }
            let text = source.as_ref().map(|source| source.value.clone());
            texts.insert(setting.name, text.or_else(|| setting.default.map(str::to_owned)));
            shown.push((setting, source));
        }
        // Other variables are for tasks; of this beginning none is.
        let strange = self.environment.iter().filter(|(name, source)| {
            name.starts_with("TIDEMILL_")
                && source.origin.found_file().is_some()
                && !names().any(|known| known == *name)
        });
        for (name, source) in strange {
            warnings.push(format!("{name} ({}) is not a setting{}", source.origin, meant(name)));
        }
        found_file::check(self.counting(&shown), &mut problems);
        if !problems.is_empty() {
            return Err(ConfigError(problems));
        }
        let values = Values::of(&texts);
        check::relations(&values, &|name| origin_of(&shown, name), &mut problems);
        let workflows = Workflows::read(&values, &mut problems);
        if !problems.is_empty() {
            return Err(ConfigError(problems));
        }
        let environment = self.environment.iter().map(|(name, source)| (name.clone(), source.value.clone()));
        let path_is_found =
            self.environment.get("PATH").is_some_and(|source| source.origin.found_file().is_some());
        Ok(Resolved { values, workflows, warnings, environment: environment.collect(), path_is_found, shown })
    }

    /// Everything that counts, by the name it counts under: settings, and variables that are none.
    fn counting<'a>(
        &'a self,
        shown: &'a [(&'static Setting, Option<Source>)],
    ) -> impl Iterator<Item = (&'a str, &'a Source)> {
        let settings = shown.iter().filter_map(|(setting, source)| Some((setting.name, source.as_ref()?)));
        let others = self.environment.iter().filter(|(name, source)| {
            !source.value.is_empty() && !names().any(|known| known == name.as_str())
        });
        settings.chain(others.map(|(name, source)| (name.as_str(), source)))
    }

    /// The value of a setting under any of its names: first by where it was given, then its own name before the others. Two
    /// names in one place with different values are a contradiction.
    fn settle(&self, setting: &'static Setting, problems: &mut Vec<String>) -> Option<Source> {
        let mut found: Option<(&'static str, &Source)> = None;
        for &name in std::iter::once(&setting.name).chain(setting.aliases) {
            let Some(source) = self.given(name) else { continue };
            let Some((first, before)) = found else {
                found = Some((name, source));
                continue;
            };
            match source.origin.rank().cmp(&before.origin.rank()) {
                Ordering::Less => found = Some((name, source)),
                Ordering::Equal if !setting.kind.is_same(&before.value, &source.value) => {
                    problems.push(format!(
                        "{first} ({}) and {name} ({}) mean the same and differ; give one of them",
                        before.origin, source.origin
                    ));
                }
                Ordering::Equal | Ordering::Greater => {}
            }
        }
        let (name, source) = found?;
        Some(Source { alias: (name != setting.name).then_some(name), ..source.clone() })
    }
}

fn origin_of(shown: &[(&'static Setting, Option<Source>)], name: &str) -> String {
    let found = shown.iter().find(|(setting, _)| setting.name == name);
    let source = found.and_then(|(_, source)| source.as_ref());
    source.map_or_else(|| "default".to_owned(), Source::place)
}

fn wrong(setting: &Setting, source: &Source, expected: &str) -> String {
    let Setting { name, kind, secret, .. } = setting;
    // An address may hold a password.
    let is_hidden = *secret || (*kind == Kind::Url && source.value.contains('@'));
    let given = if is_hidden { String::new() } else { format!(", not {:?}", source.value) };
    format!("{name} ({}) must be {expected}{given}", source.place())
}

fn one(problem: String) -> ConfigError {
    ConfigError(vec![problem])
}

fn lines(problems: &tidemill_source_file::FileProblems) -> Vec<String> {
    problems.0.iter().map(ToString::to_string).collect()
}

fn names() -> impl Iterator<Item = &'static str> {
    SETTINGS.iter().flat_map(|setting| std::iter::once(setting.name).chain(setting.aliases.iter().copied()))
}

/// The setting that a wrong name may stand for, to be said after the problem.
fn meant(given: &str) -> String {
    nearest(given, names()).map_or_else(String::new, |name| format!("; did you mean {name}?"))
}

/// The file of a name in a directory, with either ending. Both at once would leave it open which counts.
fn beside(dir: &Path, stem: &str) -> Result<Option<PathBuf>, ConfigError> {
    let found: Vec<_> = ["yaml", "yml"]
        .map(|ending| PathBuf::from(format!("{stem}.{ending}")))
        .into_iter()
        .filter(|name| dir.join(name).is_file())
        .collect();
    match found.as_slice() {
        [] => Ok(None),
        [name] => Ok(Some(name.clone())),
        _ => Err(one(format!("{stem}.yaml and {stem}.yml are both there; keep one of them"))),
    }
}

/// A list or a map where one value is meant.
struct NotSingle;

/// A value as text; `None` when nothing was given.
fn scalar(node: &SourceNode) -> Result<Option<String>, NotSingle> {
    match &node.kind {
        SourceKind::Null => Ok(None),
        SourceKind::Bool(flag) => Ok(Some(flag.to_string())),
        SourceKind::Number(number) => Ok(Some(number.to_string())),
        SourceKind::Text(text) => Ok(Some(text.clone())),
        SourceKind::List(_) | SourceKind::Map(_) => Err(NotSingle),
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
