//! What a server does, in parts that can run apart.

/// One part of a server. All but the first two are done by one process of a stage at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The API and the dashboard.
    Api,
    /// Runs tasks.
    Worker,
    /// Looks for what stands still, carries out bulks, gives up what is parked too long.
    Timers,
    /// Runs scripts for events.
    Scripts,
    /// Sends deliveries.
    Courier,
    /// Checks the health of tasks, if that is on.
    Health,
}

impl Role {
    pub(crate) const ALL: [Self; 6] =
        [Self::Api, Self::Worker, Self::Timers, Self::Scripts, Self::Courier, Self::Health];
    pub(crate) const NAMES: &[&str] = &["api", "worker", "timers", "scripts", "courier", "health"];

    pub(crate) fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The roles of a list that was checked.
    pub(super) fn of_list(text: &str) -> Vec<Self> {
        let named = |role: &Self| text.split(',').any(|word| word.trim() == role.name());
        Self::ALL.into_iter().filter(named).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_roles_in_any_order() {
        assert_eq!(Role::of_list("courier, api,api"), [Role::Api, Role::Courier]);
        assert_eq!(Role::of_list(&Role::NAMES.join(",")), Role::ALL);
    }
}
