//! The directories of an attempt.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::failure::{AgentFailure, FailureKind};
use crate::settings::Settings;

/// Where everything goes.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    output: PathBuf,
    /// Where the agent works.
    pub(crate) work: PathBuf,
    /// The state of the CLI.
    pub(crate) config: PathBuf,
    /// Its temporary files.
    pub(crate) temp: PathBuf,
    /// What is removed in the end.
    private: PathBuf,
}

impl Places {
    /// Makes the directories. With `keeps_sessions`, and a home to keep them in, the agent works there: a session can be
    /// resumed only in the directory where it began, and relies on the files it made.
    pub(crate) fn make(
        settings: &Settings,
        directory: &Path,
        request_id: &str,
        keeps_sessions: bool,
    ) -> Result<Self, AgentFailure> {
        let output =
            settings.output_dir.clone().unwrap_or_else(|| directory.join(".output").join(request_id));
        let places = Self::of(settings, output, keeps_sessions);
        places.create().map_err(|error| {
            let message = format!("the output directory {} cannot be used: {error}", places.output.display());
            AgentFailure::new(FailureKind::Files, message)
        })?;
        places.canonical()
    }

    fn of(settings: &Settings, output: PathBuf, keeps_sessions: bool) -> Self {
        let private = output.join(".claude");
        let kept = settings.home.as_ref().filter(|_| keeps_sessions);
        let config = kept.map_or_else(|| private.join("config"), |home| home.join("claude"));
        Self {
            work: kept.map_or_else(|| output.join("work"), |home| home.join("work")),
            config: settings.config_dir.clone().unwrap_or(config),
            temp: private.join("tmp"),
            private,
            output,
        }
    }

    fn create(&self) -> io::Result<()> {
        for name in ["artifacts", "logs", "traces"] {
            fs::create_dir_all(self.output.join(name))?;
        }
        fs::create_dir_all(&self.work)?;
        for private in [&self.config, &self.temp] {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(private)?;
        }
        Ok(())
    }

    /// The CLI is started in another directory, so no path may depend on ours.
    fn canonical(self) -> Result<Self, AgentFailure> {
        let whole = |path: &Path| {
            path.canonicalize().map_err(|error| {
                AgentFailure::new(FailureKind::Files, format!("{} cannot be used: {error}", path.display()))
            })
        };
        Ok(Self {
            output: whole(&self.output)?,
            work: whole(&self.work)?,
            config: whole(&self.config)?,
            temp: whole(&self.temp)?,
            private: whole(&self.private)?,
        })
    }

    /// Writes a file of the output, such as `artifacts/x.json`, whole or not at all.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) -> Result<(), AgentFailure> {
        let path = self.output.join(name);
        let new = self.output.join(format!("{name}.new"));
        let written = || -> io::Result<()> {
            // Whatever stands there is the agent's, and may be a link to somewhere else.
            match fs::remove_file(&new) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            let mut file = fs::File::options().write(true).create_new(true).mode(0o644).open(&new)?;
            file.write_all(bytes)?;
            drop(file);
            fs::rename(&new, &path)
        };
        written().map_err(|error| {
            AgentFailure::new(FailureKind::Files, format!("{} cannot be written: {error}", path.display()))
        })
    }

    /// Removes what only the CLI needed.
    pub(crate) fn clear(&self) {
        // What cannot be removed goes with the attempt's directory.
        let _ = fs::remove_dir_all(&self.private);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_the_place_of_a_file_is_not_followed() {
        let root = std::env::temp_dir().join(format!("tidemill-places-{}", std::process::id()));
        let output = root.join("output");
        fs::create_dir_all(output.join("logs")).unwrap();
        fs::write(root.join("other"), "untouched").unwrap();
        let path = PathBuf::new();
        let places =
            Places { output, work: path.clone(), config: path.clone(), temp: path.clone(), private: path };
        for name in ["logs/a.new", "logs/a"] {
            std::os::unix::fs::symlink(root.join("other"), places.output.join(name)).unwrap();
            places.write("logs/a", b"ours").unwrap();
            assert_eq!(fs::read(root.join("other")).unwrap(), b"untouched", "{name}");
            let written = fs::symlink_metadata(places.output.join("logs/a")).unwrap();
            assert!(written.is_file(), "{name}");
            assert_eq!(fs::read(places.output.join("logs/a")).unwrap(), b"ours", "{name}");
            fs::remove_file(places.output.join("logs/a")).unwrap();
        }
        fs::remove_dir_all(root).unwrap();
    }
}
