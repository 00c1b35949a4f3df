//! Access paths: the eight ways to ask for events of one tenant.

use crate::events::event::{Entity, Event};
use crate::events::key::{Index, KeyNames, KeyPrefix};
use crate::values::id::{AppName, EventType, TenantId};

/// Which events of a tenant are asked for. Each path is answered by one index.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessPath {
    Tenant,
    Entity(Entity),
    App(AppName),
    AppEntity(AppName, Entity),
    Type(EventType),
    TypeEntity(EventType, Entity),
    TypeApp(EventType, AppName),
    TypeAppEntity(EventType, AppName, Entity),
}

impl AccessPath {
    /// The narrowest path for what is known.
    pub fn narrowest(event_type: Option<EventType>, app: Option<AppName>, entity: Option<Entity>) -> Self {
        match (event_type, app, entity) {
            (None, None, None) => Self::Tenant,
            (None, None, Some(entity)) => Self::Entity(entity),
            (None, Some(app), None) => Self::App(app),
            (None, Some(app), Some(entity)) => Self::AppEntity(app, entity),
            (Some(event_type), None, None) => Self::Type(event_type),
            (Some(event_type), None, Some(entity)) => Self::TypeEntity(event_type, entity),
            (Some(event_type), Some(app), None) => Self::TypeApp(event_type, app),
            (Some(event_type), Some(app), Some(entity)) => Self::TypeAppEntity(event_type, app, entity),
        }
    }

    pub fn event_type(&self) -> Option<&EventType> {
        match self {
            Self::Type(event_type)
            | Self::TypeEntity(event_type, _)
            | Self::TypeApp(event_type, _)
            | Self::TypeAppEntity(event_type, _, _) => Some(event_type),
            Self::Tenant | Self::Entity(_) | Self::App(_) | Self::AppEntity(_, _) => None,
        }
    }

    pub fn app(&self) -> Option<&AppName> {
        match self {
            Self::App(app)
            | Self::AppEntity(app, _)
            | Self::TypeApp(_, app)
            | Self::TypeAppEntity(_, app, _) => Some(app),
            Self::Tenant | Self::Entity(_) | Self::Type(_) | Self::TypeEntity(_, _) => None,
        }
    }

    pub fn entity(&self) -> Option<&Entity> {
        match self {
            Self::Entity(entity)
            | Self::AppEntity(_, entity)
            | Self::TypeEntity(_, entity)
            | Self::TypeAppEntity(_, _, entity) => Some(entity),
            Self::Tenant | Self::App(_) | Self::Type(_) | Self::TypeApp(_, _) => None,
        }
    }

    /// Whether `event` is on this path, for any tenant.
    pub fn contains(&self, event: &Event) -> bool {
        self.event_type().is_none_or(|wanted| *wanted == event.event_type)
            && self.app().is_none_or(|wanted| *wanted == event.app)
            && self.entity().is_none_or(|wanted| *wanted == event.entity)
    }

    /// The index that answers this path.
    pub fn index(&self) -> Index {
        match self {
            Self::Tenant => Index::Primary,
            Self::Entity(_) => Index::Gsi1,
            Self::App(_) => Index::Gsi2,
            Self::AppEntity(_, _) => Index::Gsi3,
            Self::Type(_) => Index::Gsi4,
            Self::TypeEntity(_, _) => Index::Gsi5,
            Self::TypeApp(_, _) => Index::Gsi6,
            Self::TypeAppEntity(_, _, _) => Index::Gsi7,
        }
    }

    /// What to ask that index for.
    pub fn prefix(&self, tenant: &TenantId) -> KeyPrefix {
        let entity = self.entity();
        let names = KeyNames {
            tenant: tenant.as_str(),
            app: self.app().map_or("", AppName::as_str),
            entity_type: entity.map_or("", |entity| entity.kind.as_str()),
            entity_id: entity.map_or("", |entity| entity.id.as_str()),
            event_type: self.event_type().map_or("", EventType::as_str),
        };
        KeyPrefix::of(self.index(), names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn each_path_has_an_index_and_a_prefix_of_its_own() {
        let event = sample::documented_event();
        let expected = [
            (Index::Primary, "TENANT#gbinnovations", "TIMESTAMP#"),
            (Index::Gsi1, "TASK#req-123", "TASK#TIMESTAMP#"),
            (Index::Gsi2, "APP#task-workflow", "TIMESTAMP#"),
            (Index::Gsi3, "APP#task-workflow", "TASK#req-123#TIMESTAMP#"),
            (Index::Gsi4, "EVENT#Task Processing Started", "TENANT#gbinnovations#TIMESTAMP#"),
            (Index::Gsi5, "EVENT#Task Processing Started", "TENANT#gbinnovations#TASK#req-123#TIMESTAMP#"),
            (
                Index::Gsi6,
                "EVENT#Task Processing Started",
                "TENANT#gbinnovations#APP#task-workflow#TIMESTAMP#",
            ),
            (
                Index::Gsi7,
                "EVENT#Task Processing Started",
                "TENANT#gbinnovations#APP#task-workflow#TASK#req-123#TIMESTAMP#",
            ),
        ];
        for (path, (index, pk, sk)) in sample::paths_of(&event).into_iter().zip(expected) {
            let prefix = path.prefix(&event.tenant);
            assert_eq!((prefix.index, prefix.pk.as_str(), prefix.sk.as_str()), (index, pk, sk), "{path:?}");
            let again = AccessPath::narrowest(
                path.event_type().cloned(),
                path.app().cloned(),
                path.entity().cloned(),
            );
            assert_eq!(again, path);
            assert!(path.contains(&event));
        }
    }
}
