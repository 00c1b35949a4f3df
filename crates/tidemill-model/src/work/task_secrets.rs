//! Which variables of a worker's environment may be handed to tasks: the operator's list.
//!
//! A definition asks for variables by name. It gets none that the operator did not list, for its tenant or for all. What
//! belongs to the installation itself cannot be listed.

use std::collections::{BTreeMap, BTreeSet};

use crate::values::id::TenantId;
use crate::work::runner_spec::{VARIABLE_NAME_BYTES_MAX, is_of_worker, is_variable_name};

/// The names that one list may have.
pub const TASK_SECRETS_MAX: usize = 1_000;

/// Beginnings of names that belong to the installation: no task is given such a variable as a secret.
const OWN_BEGINNINGS: [&str; 2] = ["TIDEMILL_", "AWS_"];

/// Whether a variable belongs to the installation, or is given to all tasks as it is. A program adds its own settings.
pub fn is_own_variable(name: &str) -> bool {
    is_of_worker(name) || OWN_BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

/// The names that may be handed over. The default is none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskSecrets {
    of_all: BTreeSet<String>,
    of_tenants: BTreeMap<TenantId, BTreeSet<String>>,
}

impl TaskSecrets {
    /// Reads `NAME,tenant:NAME`. `is_setting` tells which names are settings of the program that reads it.
    pub fn parse(text: &str, is_setting: impl Fn(&str) -> bool) -> Result<Self, String> {
        let mut list = Self::default();
        let entries: Vec<_> = text.split(',').map(str::trim).filter(|entry| !entry.is_empty()).collect();
        if entries.len() > TASK_SECRETS_MAX {
            return Err(format!("has {} names; the limit is {TASK_SECRETS_MAX}", entries.len()));
        }
        for entry in entries {
            let (tenant, name) = match entry.rsplit_once(':') {
                Some((tenant, name)) => (Some(tenant.trim()), name.trim()),
                None => (None, entry),
            };
            if !is_variable_name(name) || name.len() > VARIABLE_NAME_BYTES_MAX {
                return Err(format!("has {entry:?}; NAME or tenant:NAME is expected"));
            }
            if is_own_variable(name) || is_setting(name) {
                return Err(format!(
                    "names {name}, which belongs to this installation and is never given to tasks"
                ));
            }
            match tenant {
                None => drop(list.of_all.insert(name.to_owned())),
                Some(tenant) => {
                    let tenant = TenantId::new(tenant)
                        .map_err(|bad| format!("has {entry:?}: the tenant {}", bad.problem))?;
                    list.of_tenants.entry(tenant).or_default().insert(name.to_owned());
                }
            }
        }
        Ok(list)
    }

    /// Whether a task of this tenant may be given the variable.
    pub fn admits(&self, tenant: &TenantId, name: &str) -> bool {
        let of_tenant = self.of_tenants.get(tenant);
        self.of_all.contains(name) || of_tenant.is_some_and(|names| names.contains(name))
    }

    /// Every name that is listed for somebody, once.
    pub fn names(&self) -> BTreeSet<&str> {
        let of_tenants = self.of_tenants.values().flatten();
        self.of_all.iter().chain(of_tenants).map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(text: &str) -> Result<TaskSecrets, String> {
        TaskSecrets::parse(text, |name| name == "SLACK_BOT_TOKEN")
    }

    #[test]
    fn a_name_is_for_all_tenants_or_for_one() {
        let list = list(" DB_URL, acme:STRIPE_KEY ,acme:DB_URL,,other:X").unwrap();
        for (tenant, name, expected) in [
            ("acme", "DB_URL", true),
            ("other", "DB_URL", true),
            ("acme", "STRIPE_KEY", true),
            ("other", "STRIPE_KEY", false),
            ("other", "X", true),
            ("acme", "X", false),
            ("acme", "db_url", false),
            ("acme", "HOME", false),
        ] {
            assert_eq!(list.admits(&TenantId::trusted(tenant), name), expected, "{tenant} {name}");
        }
        assert_eq!(list.names().into_iter().collect::<Vec<_>>(), ["DB_URL", "STRIPE_KEY", "X"]);
        assert!(!TaskSecrets::default().admits(&TenantId::trusted("acme"), "DB_URL"));
    }

    #[test]
    fn what_belongs_to_the_installation_cannot_be_listed() {
        for name in [
            "SLACK_BOT_TOKEN",
            "TIDEMILL_API_KEY",
            "TIDEMILL_X",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
            "PATH",
            "acme:SLACK_BOT_TOKEN",
            "DB_URL,acme:AWS_PROFILE",
        ] {
            let problem = list(name).unwrap_err();
            assert!(problem.contains("never given to tasks"), "{name}: {problem}");
        }
        for bad in ["A B", "A=B", "1A", "acme:", ":A", "a b:A", "a:b:c d"] {
            let problem = list(bad).unwrap_err();
            assert!(problem.starts_with("has "), "{bad}: {problem}");
        }
        let many = vec!["A"; TASK_SECRETS_MAX + 1].join(",");
        assert!(list(&many).unwrap_err().contains("the limit is 1000"));
    }
}
