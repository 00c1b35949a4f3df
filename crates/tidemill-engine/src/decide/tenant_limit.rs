//! How much unfinished work a tenant may have. Whatever brings new tasks asks here, once it knows that they are new.

use std::sync::Arc;

use tidemill_model::{TaskSpec, TenantId};

use super::draft::Draft;
use crate::commit::RecordWrite;
use crate::reply::Refusal;
use crate::state::job::spec_bytes;
use crate::state::{Load, State};

/// Names of the limits, as operators set them.
const TASKS: &str = "TENANT_TASKS_MAX";
const BYTES: &str = "TENANT_BYTES_MAX";

/// Refuses `tasks` if the tenant would have too many, or too large ones, with what this commit brings already.
pub(super) fn check<'t>(
    state: &State,
    tenant: &TenantId,
    tasks: impl IntoIterator<Item = &'t Arc<TaskSpec>>,
    draft: &Draft<'_, '_>,
) -> Result<(), Refusal> {
    #[cfg(feature = "faults")]
    if draft.policy().faults.ignore_tenant_limits {
        return Ok(());
    }
    let mut load = state.load_of(tenant);
    let count = |load: Load, spec: &Arc<TaskSpec>| load.and(spec_bytes(spec));
    for write in &draft.commit().records {
        load = match write {
            RecordWrite::Job(new) if new.tenant == *tenant => new.tasks.iter().fold(load, count),
            RecordWrite::JobTasks { tenant: owner, tasks, .. } if owner == tenant => {
                tasks.iter().fold(load, count)
            }
            RecordWrite::Task(new) if new.tenant == *tenant => count(load, &new.spec),
            _ => load,
        };
    }
    let load = tasks.into_iter().fold(load, count);
    let limits = [
        ("tasks", TASKS, load.tasks, draft.policy().tenant_tasks_max),
        ("bytes of tasks", BYTES, load.bytes, draft.policy().tenant_bytes_max),
    ];
    match limits.into_iter().find(|(_, _, count, max)| count > max) {
        Some((what, limit, count, max)) => Err(Refusal::TenantFull { what, limit, count, max }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::fixture::{Fixture, alone, completed, key, spec, submit_job, tenant};
    use super::*;
    use crate::command::{Command, Send, SubmitTask};
    use tidemill_model::JobId;

    fn is_full<T>(answer: &Result<T, Refusal>) -> bool {
        matches!(answer, Err(Refusal::TenantFull { limit: TASKS, .. }))
    }

    #[test]
    fn a_tenant_has_no_more_unfinished_tasks_than_it_may() {
        let mut fixture = Fixture::new();
        fixture.policy.tenant_tasks_max = 3;
        fixture.submit_job(vec![spec("a", &[]), spec("b", &["a"])]);
        let two = submit_job(JobId::from_u128(8), vec![spec("a", &[]), spec("b", &[])]);
        let send = |id: &str| Command::Send(Send { task: alone(id), run: 1, delay_millis: 0 });
        let task = |id: &str| Command::SubmitTask(SubmitTask { task: alone(id), once: Vec::new() });
        assert!(is_full(&fixture.run(&Command::SubmitJob(two.clone()))), "two and two are more than three");
        fixture.run(&send("t-1")).unwrap();
        fixture.run(&send("t-1")).expect("it is no other task");
        for command in [send("t-2"), task("t-3")] {
            assert!(is_full(&fixture.run(&command)), "{command:?}");
        }
        assert_eq!(fixture.state.load_of(&tenant()), fixture.state.count_load_of(&tenant()));
        let held = fixture.claim(9);
        let own = held.iter().find(|held| held.task == key("t-1")).unwrap();
        fixture.finish(&own.task, own.fence, completed()).unwrap();
        fixture.run(&task("t-3")).expect("another one is finished");
        assert_eq!(fixture.state.load_of(&tenant()).tasks, 3);
        fixture.restart();
        assert_eq!(fixture.state.load_of(&tenant()), fixture.state.count_load_of(&tenant()));
        assert_eq!(fixture.state.load_of(&tenant()).tasks, 3);
    }

    #[test]
    fn bytes_count_as_well_and_the_limit_is_named() {
        let mut fixture = Fixture::new();
        fixture.policy.tenant_bytes_max = 200;
        fixture.submit_task("t-1");
        let task = Command::SubmitTask(SubmitTask { task: alone("t-2"), once: Vec::new() });
        fixture.run(&task).unwrap();
        let task = Command::SubmitTask(SubmitTask { task: alone("t-3"), once: Vec::new() });
        let refused = fixture.run(&task).unwrap_err().to_string();
        assert!(refused.starts_with("unfinished bytes of tasks of the tenant would be"), "{refused}");
        assert!(refused.ends_with("TENANT_BYTES_MAX is 200"), "{refused}");
    }
}
