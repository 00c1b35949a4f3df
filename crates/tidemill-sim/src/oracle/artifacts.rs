//! Files between tasks: what a completed parent reported is what its children get.

use std::collections::BTreeMap;

use serde::Deserialize;
use tidemill_engine::backend::Answer;
use tidemill_engine::command::{Command, Report};
use tidemill_engine::commit::TaskKey;
use tidemill_engine::reply::{Assignment, Ending, Reply};
use tidemill_model::events::access_path::AccessPath;
use tidemill_model::events::event_query::{EventQuery, Order};
use tidemill_model::{ArtifactFile, Entity, Event, KnownType, Outcome};

use super::unreadable;
use crate::ledger::Ledger;
use crate::violation::{Violation, demand};

/// What was reported, by task and fence.
#[derive(Debug, Default)]
pub(super) struct Artifacts {
    /// Of reports that were taken.
    taken: BTreeMap<(TaskKey, u64), Vec<ArtifactFile>>,
    /// Of reports that nobody answered: each of them may have been taken.
    asked: BTreeMap<(TaskKey, u64), Vec<Vec<ArtifactFile>>>,
}

/// The part of a completion that is looked at.
#[derive(Debug, Deserialize)]
struct Completion {
    #[serde(default)]
    artifacts: Vec<ArtifactFile>,
    fence: Option<u64>,
}

impl Artifacts {
    pub(super) fn hear(&mut self, command: &Command, answer: &Answer) {
        let Command::Finish(finish) = command else { return };
        let Ok(Reply::Finished { ending: Ending::Done(Outcome::Completed), ended: Some(_) }) = answer else {
            return;
        };
        if let Report::Completed { artifacts, .. } = &finish.report {
            self.taken.insert((finish.task.clone(), finish.fence.0), artifacts.clone());
        }
    }

    /// The store died over this.
    pub(super) fn ask(&mut self, command: &Command) {
        let Command::Finish(finish) = command else { return };
        if let Report::Completed { artifacts, .. } = &finish.report {
            let place = self.asked.entry((finish.task.clone(), finish.fence.0)).or_default();
            place.push(artifacts.clone());
        }
    }

    /// A task was handed out: it gets the files of its parents as it gets their outputs.
    pub(super) fn check(&self, task: &Assignment, ledger: &mut dyn Ledger) -> Result<(), Violation> {
        for (_, request) in task.parents() {
            let key = TaskKey { tenant: task.task.tenant.clone(), request };
            let Some(event) = completion_of(&key, ledger)? else { continue };
            let Ok(Completion { artifacts, fence: Some(fence) }) = event.properties.read::<Completion>()
            else {
                continue;
            };
            let place = (key, fence);
            let fits = match (self.taken.get(&place), self.asked.get(&place)) {
                (Some(taken), _) => *taken == artifacts,
                (None, Some(asked)) => asked.contains(&artifacts),
                // Somebody else gave its output.
                (None, None) => true,
            };
            demand(fits, "a child is told the files that its parent left", || {
                let (key, known) = (&place.0, self.taken.get(&place));
                format!("{} of {}: {artifacts:?}, not {known:?}", key.request, task.task.request)
            })?;
        }
        Ok(())
    }
}

/// The completion of a task, found as it is for a child.
fn completion_of(key: &TaskKey, ledger: &mut dyn Ledger) -> Result<Option<Event>, Violation> {
    let entity = Entity::task(&key.request);
    let is_completion = |event: &Event| event.event_type.as_str() == KnownType::TaskCompleted.as_str();
    let latest = ledger.latest(&key.tenant, &entity).map_err(unreadable)?;
    if let Some(latest) = latest.filter(is_completion) {
        return Ok(Some(latest));
    }
    let path = AccessPath::TypeEntity(KnownType::TaskCompleted.event_type(), entity);
    let query =
        EventQuery { order: Order::Descending, limit: 1, ..EventQuery::all(key.tenant.clone(), path) };
    Ok(ledger.events(&query).map_err(unreadable)?.events.pop())
}
