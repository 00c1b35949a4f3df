//! Rows that are not what they should be, as sentences for people.

use tidemill_engine::state::row::{Row, RowKey};

/// What a row is about.
pub(super) fn name_of(key: &RowKey) -> String {
    match key {
        RowKey::Task(task) => format!("task {} of tenant {}", task.request, task.tenant),
        RowKey::Job(tenant, job) => format!("{job} of tenant {tenant}"),
        RowKey::JobTasks(tenant, job, _) => format!("the task list of {job} of tenant {tenant}"),
        RowKey::Message(message) => format!("message {:032x}", message.0),
        RowKey::Record(record) => match &record.tenant {
            Some(tenant) => format!("the {:?} record {:?} of tenant {tenant}", record.kind, record.id),
            None => format!("the {:?} record {:?}", record.kind, record.id),
        },
        RowKey::Entity(tenant, entity) => {
            format!("the history of {} {} of tenant {tenant}", entity.kind, entity.id)
        }
    }
}

/// What is wrong with a row that is `have` where the log gives `want`.
pub(super) fn sentence(key: &RowKey, have: Option<&Row>, want: Option<&Row>) -> String {
    let name = name_of(key);
    match (have, want) {
        (None, _) => format!("{name} is missing, but the log gives it"),
        (Some(_), None) => format!("{name} stands, but the log does not give it"),
        (Some(have), Some(want)) => {
            let (have, want) = first_difference(&format!("{have:#?}"), &format!("{want:#?}"));
            format!("{name} says `{have}`, but the log gives `{want}`")
        }
    }
}

/// The first lines that differ, without what only helps the eye.
fn first_difference(have: &str, want: &str) -> (String, String) {
    let plain = |line: Option<&str>| line.unwrap_or_default().trim().trim_end_matches(',').to_owned();
    let (mut one, mut two) = (have.lines(), want.lines());
    loop {
        let (a, b) = (one.next(), two.next());
        if a != b || a.is_none() {
            return (plain(a), plain(b));
        }
    }
}
