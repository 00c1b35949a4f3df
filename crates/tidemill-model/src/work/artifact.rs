//! Artifacts: files that a task left, which its dependents get.
//!
//! The event that completes a task names them with their size and content. A worker that gets one from elsewhere
//! checks it by that, so it never takes a half-written file of a killed attempt for one of the attempt that counts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The artifacts that one completion names.
pub const ARTIFACTS_MAX: usize = 1_000;
/// The bytes of an artifact's path.
pub const ARTIFACT_PATH_BYTES_MAX: usize = 512;
/// The folder of an attempt that holds them.
pub const ARTIFACTS_FOLDER: &str = "artifacts";

/// A file that a task left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "LeftFile")]
pub struct ArtifactFile {
    /// Its path below the folder that the place of this list stands for.
    #[schemars(length(min = 1, max = 512))]
    pub path: String,
    pub size_bytes: u64,
    /// Of its content: 64 hexadecimal digits in lower case.
    #[schemars(regex(pattern = r"^[0-9a-f]{64}$"))]
    pub sha256: String,
}

/// What can be wrong with an artifact that somebody names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ArtifactProblem {
    #[error("must be a relative path of 1 to {ARTIFACT_PATH_BYTES_MAX} bytes without `.` and `..`")]
    Path,
    #[error("must be 64 hexadecimal digits in lower case")]
    Sha256,
}

impl ArtifactFile {
    /// What is wrong with it, and in which field.
    pub fn problem(&self) -> Option<(&'static str, ArtifactProblem)> {
        if !is_inner_path(&self.path) {
            return Some(("path", ArtifactProblem::Path));
        }
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_digest = self.sha256.len() == 64 && self.sha256.bytes().all(is_digit);
        (!is_digest).then_some(("sha256", ArtifactProblem::Sha256))
    }
}

/// Whether a path names something below a folder and nothing else. What a task calls its files is its own affair: all that
/// Linux takes for a name is one.
pub fn is_inner_path(path: &str) -> bool {
    (1..=ARTIFACT_PATH_BYTES_MAX).contains(&path.len())
        && !path.contains('\0')
        && path.split('/').all(|part| !matches!(part, "" | "." | "..") && part.len() <= 255)
}

/// The folder of an attempt among the files of its task.
pub fn attempt_folder(run: u32, attempt: u32) -> String {
    format!("r{run}-a{attempt}")
}

/// The run and the attempt of a path such as `r1-a2/artifacts/report.txt`, and what stands behind its two folders.
pub fn parts_of_kept(path: &str) -> Option<(u32, u32, &str)> {
    let (folder, rest) = path.split_once('/')?;
    let (run, attempt) = folder.strip_prefix('r')?.split_once("-a")?;
    let inner = rest.strip_prefix(ARTIFACTS_FOLDER)?.strip_prefix('/')?;
    Some((run.parse().ok()?, attempt.parse().ok()?, inner))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_artifact_is_named_by_an_inner_path_and_its_content() {
        let digest = "a".repeat(64);
        let (long, too_long) = ("x".repeat(255), "x".repeat(256));
        for (path, sha256, field) in [
            ("a.txt", &*digest, None),
            ("deep/er/b c\n\u{7}.txt", &*digest, None),
            ("..a/b..", &*digest, None),
            (&*long, &*digest, None),
            ("", &*digest, Some("path")),
            ("/etc/passwd", &*digest, Some("path")),
            ("a//b", &*digest, Some("path")),
            ("a/../b", &*digest, Some("path")),
            ("./a", &*digest, Some("path")),
            ("a/", &*digest, Some("path")),
            ("a\0b", &*digest, Some("path")),
            (&*too_long, &*digest, Some("path")),
            ("a", "", Some("sha256")),
            ("a", &digest.to_uppercase(), Some("sha256")),
            ("a", &digest[1..], Some("sha256")),
        ] {
            let artifact = ArtifactFile { path: path.to_owned(), size_bytes: 0, sha256: sha256.to_owned() };
            assert_eq!(artifact.problem().map(|(field, _)| field), field, "{path:?} {sha256}");
        }
    }

    #[test]
    fn a_kept_path_tells_its_attempt() {
        for (path, expected) in [
            ("r1-a2/artifacts/deep/x", Some((1, 2, "deep/x"))),
            ("r1-a2/logs/output.log", None),
            ("r1-a2/artifactsx/y", None),
            ("r1-a2/artifacts", None),
            ("a1-r2/artifacts/x", None),
            ("r-a/artifacts/x", None),
        ] {
            assert_eq!(parts_of_kept(path), expected, "{path}");
        }
        assert_eq!(attempt_folder(1, 2), "r1-a2");
    }
}
