//! Which of the functions this process is.

use std::collections::BTreeMap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    SaveEvent,
    DlqProcessor,
    Dispatcher,
    HealthCheck,
    EventBridgeDlqAlert,
    ProducerApi,
    WorkflowEvent,
    Reconcile,
}

const ROLES: [(&str, Role); 8] = [
    ("save-event", Role::SaveEvent),
    ("dlq-processor", Role::DlqProcessor),
    ("dispatcher", Role::Dispatcher),
    ("health-check", Role::HealthCheck),
    ("eventbridge-dlq-alert", Role::EventBridgeDlqAlert),
    ("producer-api", Role::ProducerApi),
    ("workflow-event", Role::WorkflowEvent),
    ("reconcile", Role::Reconcile),
];

/// What says so: the first that is set counts.
const NAMES: [&str; 2] = ["TIDEMILL_ROLE", "_HANDLER"];

impl Role {
    pub(crate) fn of(environment: &BTreeMap<String, String>) -> Result<Self, String> {
        let set = |name: &&'static str| {
            let value = environment.get(*name).filter(|value| !value.is_empty())?;
            Some((*name, value.as_str()))
        };
        let (name, value) = NAMES.iter().find_map(set).unwrap_or((NAMES[1], ""));
        let found = ROLES.iter().find(|(role, _)| *role == value);
        found.map(|(_, role)| *role).ok_or_else(|| {
            let choices: Vec<_> = ROLES.iter().map(|(role, _)| *role).collect();
            format!("{name} is `{value}`, which is no function; it may be {}", choices.join(", "))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pairs: &[(&str, &str)]) -> Result<Role, String> {
        Role::of(&pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn the_handler_says_which_function_it_is() {
        for (name, role) in ROLES {
            assert_eq!(of(&[("_HANDLER", name)]), Ok(role));
            assert_eq!(of(&[("_HANDLER", "bootstrap"), ("TIDEMILL_ROLE", name)]), Ok(role));
        }
        let choices = "save-event, dlq-processor, dispatcher, health-check, eventbridge-dlq-alert, producer-api, \
                       workflow-event, reconcile";
        for (pairs, name, value) in [
            (&[("_HANDLER", "bootstrap")][..], "_HANDLER", "bootstrap"),
            (&[("_HANDLER", "reconcile"), ("TIDEMILL_ROLE", "sweep")], "TIDEMILL_ROLE", "sweep"),
            (&[], "_HANDLER", ""),
        ] {
            let told = format!("{name} is `{value}`, which is no function; it may be {choices}");
            assert_eq!(of(pairs), Err(told));
        }
    }
}
