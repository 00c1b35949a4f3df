//! The user that tasks run as.

use tidemill_worker::spawner::RunAs;

/// The file that names the users of this machine.
const USERS: &str = "/etc/passwd";

/// `NAME` of this machine, or `UID:GID`.
pub(super) fn user(text: &str) -> Option<RunAs> {
    if let Some((uid, gid)) = text.split_once(':') {
        return Some(RunAs { uid: uid.parse().ok()?, gid: gid.parse().ok()? });
    }
    named(text, &std::fs::read_to_string(USERS).ok()?)
}

/// The name of a user of this machine, if it has one.
pub(crate) fn user_name(uid: u32) -> Option<String> {
    name_of(uid, &std::fs::read_to_string(USERS).ok()?)
}

fn name_of(uid: u32, users: &str) -> Option<String> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then(|| name.to_owned())
    })
}

fn named(name: &str, users: &str) -> Option<RunAs> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next() != Some(name) {
            return None;
        }
        let mut ids = fields.skip(1);
        Some(RunAs { uid: ids.next()?.parse().ok()?, gid: ids.next()?.parse().ok()? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_number() {
        let users = "root:x:0:0:root:/root:/bin/bash\nwork:x:1001:1002::/home/work:/bin/sh\nodd:x\n";
        let found = |name| named(name, users).map(|RunAs { uid, gid }| (uid, gid));
        assert_eq!(found("work"), Some((1001, 1002)));
        for name in ["wor", "odd", "", "x"] {
            assert_eq!(found(name), None, "{name}");
        }
        assert_eq!(name_of(1001, users).as_deref(), Some("work"));
        assert_eq!(name_of(1002, users), None);
        assert_eq!(user("5:6").map(|RunAs { uid, gid }| (uid, gid)), Some((5, 6)));
        assert!(user("5:").is_none() && user(":").is_none() && user("-1:5").is_none());
    }
}
