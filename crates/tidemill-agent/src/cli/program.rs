//! Where the `claude` program is.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::failure::{AgentFailure, FailureKind};
use crate::settings::Settings;

const NAME: &str = "claude";

/// The program: the one that the settings name, or the `claude` of the search path.
pub(crate) fn find(
    settings: &Settings,
    environment: &[(OsString, OsString)],
) -> Result<PathBuf, AgentFailure> {
    let path = environment.iter().find(|(name, _)| name == "PATH").map(|(_, value)| value.as_os_str());
    let named = settings.program.as_deref();
    let name = named.unwrap_or(OsStr::new(NAME));
    let found = if Path::new(name).components().count() > 1 {
        is_program(Path::new(name)).then(|| PathBuf::from(name))
    } else {
        let folders = path.map(std::env::split_paths).into_iter().flatten();
        folders.map(|folder| folder.join(name)).find(|place| is_program(place))
    };
    found.ok_or_else(|| {
        let told = match named {
            Some(name) => format!("CLAUDE_BIN names {}, which is no program", name.display()),
            None => format!("there is no program {NAME} in PATH"),
        };
        let remedy = "install Claude Code (npm install -g @anthropic-ai/claude-code) or set CLAUDE_BIN to it";
        AgentFailure::new(FailureKind::NoCli, format!("{told}; {remedy}"))
    })
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Result<PathBuf, AgentFailure> {
        let mut environment: Vec<(OsString, OsString)> = vec![("TIDEMILL_AGENT_FILE".into(), "/a".into())];
        environment.extend(variables.iter().map(|(name, value)| (name.into(), value.into())));
        find(&Settings::read(&environment).unwrap(), &environment)
    }

    #[test]
    fn the_program_is_the_named_one_or_that_of_the_search_path() {
        assert_eq!(found(&[("CLAUDE_BIN", "/bin/sh")]).unwrap(), Path::new("/bin/sh"));
        assert_eq!(found(&[("CLAUDE_BIN", "sh"), ("PATH", "/nowhere:/bin")]).unwrap(), Path::new("/bin/sh"));
        for variables in
            [&[("CLAUDE_BIN", "/bin/nothing")][..], &[("PATH", "/nowhere")], &[], &[("CLAUDE_BIN", "/bin")]]
        {
            let failure = found(variables).unwrap_err();
            assert_eq!(failure.kind, FailureKind::NoCli);
            assert!(failure.message.contains("set CLAUDE_BIN to it"), "{failure}");
        }
    }
}
