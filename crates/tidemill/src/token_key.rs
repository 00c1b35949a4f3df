//! The key that task tokens are sealed with: a file beside the data directory, so that a copy of the data opens nothing.
//!
//! It is made when it is first needed. The data directory remembers which key it was, and no other is taken for it:
//! tokens that were sealed with it could not be opened any more. On AWS every process of a stage is given the same key, and
//! none is made.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use tidemill_model::values::hex;

/// In the data directory: which key belongs to it.
const MARK_NAME: &str = "token-key.id";
const KEY_BYTES: usize = 32;

/// A key of tokens and the data directory it belongs to.
#[derive(Debug, Clone)]
pub(crate) struct TokenKey {
    file: PathBuf,
    /// The key itself, if it was given. Then there is no file.
    digits: Option<String>,
    mark: PathBuf,
}

/// The key that all processes of a stage on AWS are given: its digits, or the file that holds them.
#[cfg(feature = "aws")]
pub(crate) fn shared_key(digits: Option<&str>, file: Option<&Path>) -> Result<[u8; KEY_BYTES], String> {
    match (digits, file) {
        (Some(digits), _) => given(digits),
        (None, Some(file)) => {
            let shown = file.display();
            let key = TokenKey { file: file.to_owned(), digits: None, mark: PathBuf::new() };
            key.read()?.ok_or_else(|| format!("the token key {shown} is not there (TOKEN_KEY_FILE)"))
        }
        (None, None) => Err(
            "there is no key to seal task tokens with: give every process of the stage the same TOKEN_KEY \
                             or TOKEN_KEY_FILE"
                .to_owned(),
        ),
    }
}

/// How things stand with a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyState {
    /// Nothing was ever sealed here.
    NotMade,
    Good,
}

impl TokenKey {
    /// The key or the file that was set, or the file beside the data directory.
    pub(crate) fn of(data: &Path, file: Option<&Path>, digits: Option<&str>) -> Self {
        let beside = || {
            let absolute = std::path::absolute(data).unwrap_or_else(|_| data.to_owned());
            let mut name = absolute.file_name().unwrap_or_default().to_owned();
            name.push(".token-key");
            absolute.with_file_name(name)
        };
        let file = file.map_or_else(beside, Path::to_owned);
        Self { file, digits: digits.map(str::to_owned), mark: data.join(MARK_NAME) }
    }

    /// What it is called, for people.
    pub(crate) fn name(&self) -> String {
        if self.digits.is_some() { "TOKEN_KEY".to_owned() } else { self.file.display().to_string() }
    }

    /// Whether the key is there, readable for its owner alone, and the one of this data directory.
    pub(crate) fn check(&self) -> Result<KeyState, String> {
        Ok(if self.read()?.is_some() { KeyState::Good } else { KeyState::NotMade })
    }

    /// Why the key cannot be made when it is first needed, if the directory of its file tells that.
    pub(crate) fn obstacle(&self) -> Option<String> {
        let dir = self.file.parent().filter(|_| self.digits.is_none())?;
        let error = rustix::fs::access(dir, rustix::fs::Access::WRITE_OK).err()?;
        Some(format!("{} cannot be made: {}: {error}", self.file.display(), dir.display()))
    }

    /// The key, made if there never was one.
    pub(crate) fn get(&self) -> Result<[u8; KEY_BYTES], String> {
        let key = match self.read()? {
            Some(key) => key,
            None => self.make()?,
        };
        if !self.mark.exists() {
            let written = std::fs::write(&self.mark, format!("{}\n", id_of(&key)));
            written.map_err(|error| format!("{} cannot be written: {error}", self.mark.display()))?;
        }
        Ok(key)
    }

    fn read(&self) -> Result<Option<[u8; KEY_BYTES]>, String> {
        let mark = std::fs::read_to_string(&self.mark).ok();
        let key = match &self.digits {
            Some(digits) => Some(given(digits)?),
            None => self.read_file(mark.is_some())?,
        };
        if let (Some(key), Some(mark)) = (&key, mark)
            && mark.trim() != id_of(key)
        {
            return Err(format!(
                "the token key {} is not the one that this data directory was used with; put that one back, or name it \
                 with TOKEN_KEY_FILE as the server does",
                self.name()
            ));
        }
        Ok(key)
    }

    fn read_file(&self, was_used: bool) -> Result<Option<[u8; KEY_BYTES]>, String> {
        let shown = self.file.display();
        let mut file = match File::open(&self.file) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if !was_used {
                    return Ok(None);
                }
                return Err(format!(
                    "the token key {shown} is not there; name it with TOKEN_KEY_FILE as the server does, put it back, or \
                     remove {} to begin with a new one (tokens of executions that are parked now cannot be opened then)",
                    self.mark.display()
                ));
            }
            Err(error) => return Err(format!("the token key {shown} cannot be read: {error}")),
        };
        let broken = |error: io::Error| format!("the token key {shown} cannot be read: {error}");
        let found = file.metadata().map_err(broken)?;
        let own = rustix::process::geteuid().as_raw();
        if !may_own(found.uid(), own) {
            let owner = found.uid();
            // What root changed for itself, the server could not read any more.
            let advice = if own == 0 {
                format!("run this as user {owner}, as the server does: sudo -u '#{owner}' tidemill …")
            } else {
                format!("it must belong to user {own}, whom this runs as, or to root: chown {own} {shown}")
            };
            return Err(format!(
                "the token key {shown} belongs to user {owner}, who can read and change it; {advice}"
            ));
        }
        let mode = found.permissions().mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(format!(
                "the token key {shown} is open to others (mode {mode:o}): chmod 600 {shown}"
            ));
        }
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(broken)?;
        let key = hex::decode(text.trim())
            .ok_or_else(|| format!("the token key {shown} is no key: it must be 64 hexadecimal digits"))?;
        Ok(Some(key))
    }

    fn make(&self) -> Result<[u8; KEY_BYTES], String> {
        let failed =
            |error: io::Error| format!("the token key {} cannot be made: {error}", self.file.display());
        let mut key = [0; KEY_BYTES];
        File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut key)).map_err(failed)?;
        let mut draft = self.file.clone().into_os_string();
        draft.push(format!(".{}", std::process::id()));
        let draft = PathBuf::from(draft);
        let made = (|| {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
            writeln!(file, "{}", hex::encode(&key))?;
            file.sync_all()?;
            // It is there whole or not at all, and another's is not written over.
            std::fs::hard_link(&draft, &self.file)?;
            self.file.parent().map_or(Ok(()), |dir| File::open(dir)?.sync_all())
        })();
        // A draft that stays holds a key which nobody uses, and only this user reads it.
        let _ = std::fs::remove_file(&draft);
        made.map_err(failed)?;
        Ok(key)
    }
}

fn given(digits: &str) -> Result<[u8; KEY_BYTES], String> {
    hex::decode(digits.trim()).ok_or_else(|| "TOKEN_KEY must be 64 hexadecimal digits".to_owned())
}

/// Tells keys apart without telling anything of them.
fn id_of(key: &[u8; KEY_BYTES]) -> String {
    let digest = Sha256::new().chain_update("tidemill token key\n").chain_update(key).finalize();
    hex::encode(&digest[..8])
}

/// Whether the file of a key may belong to this user: to the one we run as, or to root, who reads everything anyway.
pub(crate) fn may_own(owner: u32, own: u32) -> bool {
    owner == own || owner == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Self {
            let dir = std::env::temp_dir().join(format!("tidemill-key-{}-{name}", std::process::id()));
            let _ = std::fs::remove_dir_all(&dir);
            std::fs::create_dir_all(dir.join("data")).unwrap();
            Self(dir)
        }

        fn key(&self) -> TokenKey {
            TokenKey::of(&self.0.join("data"), None, None)
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn it_is_made_once_beside_the_data_for_its_owner_alone() {
        let dir = Dir::new("made");
        let key = dir.key();
        assert_eq!(key.file, dir.0.join("data.token-key"));
        assert_eq!(key.check(), Ok(KeyState::NotMade));
        let first = key.get().unwrap();
        assert_eq!(dir.key().get(), Ok(first));
        assert_eq!(key.check(), Ok(KeyState::Good));
        let mode = std::fs::metadata(&key.file).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode, 0o600);
        let inside = std::fs::read_to_string(dir.0.join("data").join(MARK_NAME)).unwrap();
        assert!(!inside.contains(&hex::encode(&first)), "the key itself is not with the data");
        assert_eq!(std::fs::read_dir(&dir.0).unwrap().count(), 2, "no draft is left");
    }

    #[test]
    fn a_key_of_somebody_else_is_not_used() {
        for (owner, own, expected) in [(7, 7, true), (0, 7, true), (0, 0, true), (8, 7, false), (7, 0, false)]
        {
            assert_eq!(may_own(owner, own), expected, "{owner} {own}");
        }
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let dir = Dir::new("foreign");
        let key = dir.key();
        let first = key.get().unwrap();
        std::os::unix::fs::chown(&key.file, Some(65_534), None).unwrap();
        for problem in [key.get().unwrap_err(), key.check().unwrap_err()] {
            // Root is sent to the owner: a key that root took for itself, the server could not read any more.
            assert!(
                problem.contains("belongs to user 65534") && problem.contains("sudo -u '#65534' tidemill"),
                "{problem}"
            );
            assert!(!problem.contains("chown"), "{problem}");
        }
        std::os::unix::fs::chown(&key.file, Some(0), None).unwrap();
        assert_eq!(key.get(), Ok(first));
    }

    #[test]
    fn a_missing_or_wrong_key_is_told() {
        let dir = Dir::new("wrong");
        let key = dir.key();
        let first = key.get().unwrap();
        let write = |text: &str| {
            std::fs::write(&key.file, text).unwrap();
            std::fs::set_permissions(&key.file, std::fs::Permissions::from_mode(0o600)).unwrap();
        };
        for (text, word) in [("", "is no key"), ("abc", "is no key"), (&"0f".repeat(32), "is not the one")] {
            write(text);
            let problem = key.get().unwrap_err();
            assert!(problem.contains(word) && problem.contains("data.token-key"), "{problem}");
        }
        std::fs::remove_file(&key.file).unwrap();
        assert!(key.check().unwrap_err().contains("is not there; name it with TOKEN_KEY_FILE"));
        write(&hex::encode(&first));
        assert_eq!(key.get(), Ok(first));
        std::fs::set_permissions(&key.file, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(key.get().unwrap_err().contains("chmod 600"));
        // The key itself is as good as its file, if it is the same.
        let data = dir.0.join("data");
        assert_eq!(TokenKey::of(&data, None, Some(&hex::encode(&first))).get(), Ok(first));
        for (digits, word) in [("abc", "TOKEN_KEY must be 64"), (&*"0f".repeat(32), "is not the one")] {
            let problem = TokenKey::of(&data, None, Some(digits)).get().unwrap_err();
            assert!(problem.contains(word) && problem.contains("TOKEN_KEY"), "{problem}");
        }
        // A user who wants another one removes both files.
        std::fs::remove_file(&key.file).unwrap();
        std::fs::remove_file(dir.0.join("data").join(MARK_NAME)).unwrap();
        assert_ne!(key.get().unwrap(), first);
    }
}
