//! What agents used and may use: in rows that leave memory, in a log whose beginning goes, and in an export.

use std::collections::BTreeMap;

use tidemill_embedded::data_lock::DataLock;
use tidemill_embedded::import_dir::import_into;
use tidemill_engine::command::{BudgetTarget, Command, Finish, Report, SetBudget, Spent, SubmitJob};
use tidemill_engine::record::{RecordKind, RecordValue};
use tidemill_engine::reply::{Assignment, Reply};
use tidemill_engine::state::row::{Row, RowKey};
use tidemill_model::{Budget, ErrorCategory, JobId, MicroUsd, Period, SessionId, TaskSpec, Usage, UsageSum};

use super::lab::{
    self, DAY, Fresh, Lab, acme, assert_not_imported, complete, plain, publish, small, spec, submit_job,
    unwatched,
};

fn agents(names: &[&str]) -> Vec<TaskSpec> {
    let agent = |name: &&str| {
        let mut spec = spec(name, &[]);
        spec.options.agent = true;
        spec
    };
    names.iter().map(agent).collect()
}

fn usd(dollars: u64) -> Budget {
    Budget { usd: Some(MicroUsd(dollars * 1_000_000)), tokens: None }
}

fn used(micros: u64) -> Usage {
    Usage { input_tokens: 3, output_tokens: 4, turns: 1, cost_micros: micros, ..Usage::default() }
}

/// A job of agents with a budget.
fn submit(job: u128, names: &[&str], budget: Option<Budget>) -> Command {
    let Command::SubmitJob(submit) = submit_job(JobId::from_u128(job), agents(names), None) else {
        unreachable!("it is a job")
    };
    Command::SubmitJob(SubmitJob { budget, ..submit })
}

fn with(command: Command, spent: Spent) -> Command {
    let Command::Finish(finish) = command else { unreachable!("it is a finish") };
    Command::Finish(Finish { spent, ..finish })
}

fn spend(task: &Assignment, micros: u64) -> Command {
    with(complete(task, "{}"), Spent { usage: Some(used(micros)), session_id: None })
}

fn set_budget(target: BudgetTarget, budget: Option<Budget>) -> Command {
    Command::SetBudget(SetBudget { tenant: acme(), target, budget })
}

fn sums(lab: &Lab) -> BTreeMap<String, UsageSum> {
    let records = lab.store.records(RecordKind::Usage).unwrap();
    let sum = |value| match value {
        RecordValue::Usage(sum) => sum,
        other => panic!("{other:?}"),
    };
    records.into_iter().map(|(key, record)| (key.id.to_string(), sum(record.value))).collect()
}

fn micros(lab: &Lab, id: &str) -> u64 {
    sums(lab).get(id).map_or(0, |sum| sum.cost_micros)
}

fn allowance(lab: &Lab, job: u128) -> Option<u64> {
    match lab.store.row(&RowKey::Job(acme(), JobId::from_u128(job))).unwrap() {
        Some(Row::Job(head)) => head.allowance.map(|allowance| allowance.spent.cost_micros),
        other => panic!("{other:?}"),
    }
}

#[test]
fn sums_go_on_from_rows_that_left_memory() {
    let dir = Fresh::new();
    let mut lab = Lab::begun(&dir, 0);
    lab.run(set_budget(BudgetTarget::Tenant(Period::Total), Some(usd(100)))).unwrap();
    for round in 1..=4_u128 {
        lab.run(submit(round, &["a", "b"], Some(usd(50)))).unwrap();
        for task in lab.claim(2) {
            lab.run(spend(&task, 1_000)).unwrap();
            // What is stored and finished leaves memory, and the sums with it.
            lab.store.flush_rows().unwrap();
            let in_memory =
                lab.store.state().records().filter(|(key, _)| key.kind == RecordKind::Usage).count();
            assert_eq!(in_memory, 0);
        }
        assert_eq!(micros(&lab, "tenant"), u64::try_from(round).unwrap() * 2_000);
        assert_eq!(allowance(&lab, round), Some(2_000));
        lab.assert_clean();
        lab = if round % 2 == 0 { lab.rebuilt(&dir, 0) } else { lab };
    }
    // A job that left memory can have its budget changed.
    lab.run(set_budget(BudgetTarget::Job(JobId::from_u128(1)), Some(usd(1)))).unwrap();
    assert_eq!(allowance(&lab, 1), Some(2_000));
    lab.assert_clean();
    // The tenant's budget is in memory from the start, so a claim can look at it.
    let now = lab.now;
    lab.store.flush_rows().unwrap();
    drop(lab);
    let mut lab = Lab::keeping(&dir, 0, now);
    lab.run(submit(9, &["a"], None)).unwrap();
    assert_eq!(lab.claim(1)[0].budget_left, Some(100_000_000 - 8_000));
}

#[test]
fn a_budget_that_was_removed_is_not_there_after_a_restart() {
    let dir = Fresh::new();
    let mut lab = Lab::begun(&dir, 0);
    lab.run(set_budget(BudgetTarget::Tenant(Period::Total), Some(usd(0)))).unwrap();
    lab.store.flush_rows().unwrap();
    lab.run(set_budget(BudgetTarget::Tenant(Period::Total), None)).unwrap();
    lab.store.flush_rows().unwrap();
    let now = lab.now;
    drop(lab);
    let mut lab = Lab::keeping(&dir, 0, now);
    lab.run(submit(1, &["a"], None)).unwrap();
    assert_eq!(lab.claim(1).len(), 1);
    lab.assert_clean();
}

/// Fills several segments and seals them, with a checkpoint behind.
fn fill(lab: &mut Lab) {
    for n in 0..200 {
        let padding = "x".repeat(400);
        let event = publish("filler", plain(&format!(r#"{{"n":{n},"padding":"{padding}"}}"#)), None, None);
        lab.run(event).unwrap();
    }
    lab.store.flush_rows().unwrap();
    lab.seal_all();
}

#[test]
fn sums_and_budgets_outlive_the_events() {
    let dir = Fresh::new();
    let mut lab = Lab::begun(&dir, 10);
    lab.run(set_budget(BudgetTarget::Tenant(Period::Total), Some(usd(3)))).unwrap();
    lab.run(submit(1, &["a", "b"], Some(usd(2)))).unwrap();
    for task in lab.claim(2) {
        lab.run(spend(&task, 1_000_000)).unwrap();
    }
    let before = sums(&lab);
    assert_eq!(before.len(), 6, "{before:?}");
    fill(&mut lab);
    lab.pass(20 * DAY);
    fill(&mut lab);
    let expired = lab.store.expire(lab.now).unwrap();
    assert!(expired.segments_dropped > 0 && expired.rows_carried > 0, "{expired:?}");
    lab.assert_clean();
    for round in 0..2 {
        assert_eq!(sums(&lab), before, "round {round}");
        assert_eq!(allowance(&lab, 1), Some(2_000_000), "round {round}");
        lab = lab.rebuilt(&dir, 10);
    }
    lab.run(submit(2, &["a", "b"], None)).unwrap();
    let task = lab.claim(1).remove(0);
    assert_eq!(task.budget_left, Some(1_000_000));
    lab.run(spend(&task, 1_500_000)).unwrap();
    assert!(lab.claim(9).is_empty(), "the budget is used up");
    assert_eq!(micros(&lab, "tenant"), 3_500_000);
    lab.assert_clean();
}

#[test]
fn an_export_takes_sums_budgets_and_sessions_along() {
    let (one, two) = (Fresh::new(), Fresh::new());
    let mut lab = Lab::begun(&one, 0);
    lab.run(set_budget(BudgetTarget::Tenant(Period::Month), Some(Budget { tokens: Some(1_000), ..usd(5) })))
        .unwrap();
    lab.run(submit(1, &["a", "b"], Some(usd(2)))).unwrap();
    let tasks = lab.claim(2);
    lab.run(spend(&tasks[0], 1_234_567)).unwrap();
    let session = SessionId::new("s-1").unwrap();
    let failed =
        Report::Failed { error: "x".into(), category: ErrorCategory::Network, retry_after_millis: None };
    let spent = Spent { usage: Some(used(1)), session_id: Some(session.clone()) };
    lab.run(with(lab::finish(&tasks[1], failed), spent)).unwrap();
    let text = lab.export();
    let lock = DataLock::take(&two).unwrap();
    import_into(&two, &lock, small(), &mut text.as_bytes(), lab.now, &mut unwatched).unwrap();
    drop(lock);
    let mut copy = Lab::keeping(&two, 0, lab.now);
    copy.assert_clean();
    assert_eq!(copy.export(), text);
    assert_eq!(sums(&copy), sums(&lab));
    for lab in [&mut lab, &mut copy] {
        lab.pass(3_600_000);
        let tasks = lab.claim(9);
        let [task] = &tasks[..] else { panic!("{tasks:?}") };
        assert_eq!(
            (task.session_id.as_ref(), task.budget_left),
            (Some(&session), Some(2_000_000 - 1_234_568))
        );
        assert!(task.spec.options.agent);
    }
    // Sums of strange values do not come in.
    for (from, to) in [("\"attempts\":1", "\"attempts\":-1"), ("\"period\":\"month\"", "\"period\":\"week\"")]
    {
        assert_not_imported(&text, from, to, copy.now);
    }
}

#[test]
fn a_session_is_kept_with_a_task_that_waits() {
    let dir = Fresh::new();
    let mut lab = Lab::begun(&dir, 0);
    lab.run(submit(1, &["a"], None)).unwrap();
    let task = lab.claim(1).remove(0);
    let session = SessionId::new("s-1").unwrap();
    let failed =
        Report::Failed { error: "x".into(), category: ErrorCategory::Network, retry_after_millis: None };
    let spent = Spent { usage: None, session_id: Some(session.clone()) };
    let reply = lab.run(with(lab::finish(&task, failed), spent)).unwrap();
    assert!(matches!(reply, Reply::Finished { .. }));
    lab.store.flush_rows().unwrap();
    lab = lab.rebuilt(&dir, 0);
    lab.pass(3_600_000);
    assert_eq!(lab.claim(1)[0].session_id, Some(session));
}
