//! Usage and budgets: every attempt that says what it used is added to the sums in its own commit, and an agent task
//! does not start under a budget that is used up.

use std::sync::Arc;

use tidemill_model::events::properties::{BudgetExceeded, FailureSource, TaskFailed};
use tidemill_model::spending::budget::BUDGET_EXCEEDED;
use tidemill_model::{
    Allowance, BudgetScope, Day, Entity, ErrorCategory, Json, KnownType, Outcome, Period, Spending, TaskHead,
    TenantBudget, TenantId, Timestamp, Usage, UsageSum,
};

use crate::kernel::commit::{RecordWrite, TaskChangeKind, TaskKey};
use crate::kernel::draft::{By, Draft, Subject, identity, spec_of};
use crate::kernel::record::{Record, RecordKey, RecordValue, UsageOf};
use crate::kernel::site::Origin;
use crate::kernel::state::row::RowKey;
use crate::kernel::state::{State, TaskPlace, TaskRef};
use crate::parking::park::Defeat;
use crate::work::running::finish::cut;
use crate::work::running::give_up::report_failure;

/// The entity of events about a tenant's budget.
pub(crate) const BUDGET_ENTITY: &str = "budget";

/// Whose budgets there are.
const OF_JOB: &str = "the job's";
const OF_TENANT: &str = "the tenant's";

/// An attempt that ended and said what it used.
pub(crate) struct Charge<'a> {
    pub(crate) usage: &'a Usage,
    pub(crate) duration_millis: u64,
    /// Whether the run of the task is over.
    pub(crate) is_end: bool,
    /// When the event that tells it happened.
    pub(crate) at: Timestamp,
}

/// The sums that an attempt belongs to.
pub(crate) fn sums_of(key: &TaskKey, task: &TaskRef<'_>, at: Timestamp) -> Vec<RecordKey> {
    let spec = spec_of(task);
    let (tenant, name, day) = (&key.tenant, &spec.name, Day::of(at));
    let mut sums = vec![
        RecordKey::usage(tenant, UsageOf::Tenant),
        RecordKey::usage(tenant, UsageOf::Definition(name)),
        RecordKey::usage(tenant, UsageOf::Day(day)),
        RecordKey::usage(tenant, UsageOf::Month(day.month())),
        RecordKey::usage(tenant, UsageOf::DayAndDefinition(day, name)),
    ];
    if let TaskPlace::InJob { job, .. } = task.place {
        sums.push(RecordKey::usage(tenant, UsageOf::Job(job.head.job)));
    }
    sums
}

/// Adds an attempt to the sums and to what was spent of the budgets.
pub(crate) fn charge(
    state: &State,
    key: &TaskKey,
    task: &TaskRef<'_>,
    charge: &Charge<'_>,
    draft: &mut Draft<'_, '_>,
) {
    for sum in sums_of(key, task, charge.at) {
        #[cfg(feature = "faults")]
        if draft.policy().faults.skip_sum && sum.id.starts_with(crate::kernel::record::JOB_USAGE) {
            continue;
        }
        let before = sum_in(state, &sum);
        let after = before.plus(charge.usage, charge.duration_millis, charge.is_end);
        put(state, sum, RecordValue::Usage(after), draft);
    }
    charge_job(key, task, charge, draft);
    charge_tenant(state, key, task, charge, draft);
}

fn charge_job(key: &TaskKey, task: &TaskRef<'_>, charge: &Charge<'_>, draft: &mut Draft<'_, '_>) {
    let TaskPlace::InJob { job, .. } = task.place else { return };
    let Some(before) = job.head.allowance.as_deref() else { return };
    let after = Allowance { spent: before.spent.plus(charge.usage), ..*before };
    let (tenant, id) = (key.tenant.clone(), job.head.job);
    draft.record(RecordWrite::JobAllowance { tenant, job: id, allowance: Some(after) });
    if !before.is_used_up() && after.is_used_up() {
        let exceeded = BudgetExceeded {
            scope: BudgetScope::Job,
            job_id: Some(id),
            request_id: key.request.clone(),
            limit: after.budget,
            period: None,
            spent: after.spent,
        };
        let mut subject = draft.job_subject(job);
        let by = By::component(Origin::Dispatcher);
        draft.event(&mut subject, KnownType::BudgetExceeded, by, Json::of(&exceeded));
        draft.note_job_event(&subject);
    }
}

fn charge_tenant(
    state: &State,
    key: &TaskKey,
    task: &TaskRef<'_>,
    charge: &Charge<'_>,
    draft: &mut Draft<'_, '_>,
) {
    let Some(before) = tenant_budget(state, &key.tenant, charge.at) else { return };
    let spent = before.allowance.spent.plus(charge.usage);
    let after = TenantBudget { allowance: Allowance { spent, ..before.allowance }, ..before };
    put(state, RecordKey::budget(&key.tenant), RecordValue::Budget(after), draft);
    if before.allowance.is_used_up() || !after.allowance.is_used_up() {
        return;
    }
    let exceeded = BudgetExceeded {
        scope: BudgetScope::Tenant,
        job_id: None,
        request_id: key.request.clone(),
        limit: after.allowance.budget,
        period: Some(after.period).filter(|period| *period != Period::Total),
        spent,
    };
    let entity = Entity::system(BUDGET_ENTITY);
    let last = state.stream(&key.tenant, &entity).and_then(|stream| stream.last_timestamp());
    let app = draft.task_subject(key, task).app;
    let mut subject = Subject { tenant: key.tenant.clone(), app, entity, last };
    let by = By::component(Origin::Dispatcher);
    draft.event(&mut subject, KnownType::BudgetExceeded, by, Json::of(&exceeded));
}

/// What a budget says of an agent task that could start.
pub(crate) enum Verdict {
    /// It may; `left` has how many millionths of a dollar are left of that budget, if dollars are limited.
    Start { left: Option<(u64, Arc<str>)> },
    /// It may not.
    Refuse(String),
}

/// Whether the budgets let a task start.
pub(crate) fn judge(state: &State, key: &TaskKey, task: &TaskRef<'_>, now: Timestamp) -> Verdict {
    let (options, job) = match task.place {
        TaskPlace::InJob { job, index } => (&job.node(index).spec.options, job.head.allowance.as_deref()),
        TaskPlace::Alone(alone) => (&alone.spec.options, None),
    };
    if !options.agent {
        return Verdict::Start { left: None };
    }
    let tenant = tenant_budget(state, &key.tenant, now);
    let job_text = job.and_then(|job| job.used_up_text(OF_JOB, Period::Total));
    let tenant_text = || tenant.and_then(|tenant| tenant.allowance.used_up_text(OF_TENANT, tenant.period));
    if let Some(text) = job_text.or_else(tenant_text) {
        return Verdict::Refuse(text);
    }
    let of_job = job.map(|job| (*job, OF_JOB, Period::Total));
    let of_tenant = tenant.map(|tenant| (tenant.allowance, OF_TENANT, tenant.period));
    let limits = of_job.into_iter().chain(of_tenant);
    let limits = limits.filter_map(|limit| Some((limit.0.left_micros()?, limit)));
    let tightest = limits.min_by_key(|(left, _)| *left);
    let left = tightest.and_then(|(left, (allowance, whose, period))| {
        Some((left, Arc::from(allowance.name(whose, period)?)))
    });
    Verdict::Start { left }
}

/// Ends a task that may not start, or parks it. Nobody holds it, so the fence is raised.
pub(crate) fn refuse(
    state: &State,
    key: &TaskKey,
    task: &TaskRef<'_>,
    head: &TaskHead,
    error: &str,
    draft: &mut Draft<'_, '_>,
) {
    let (fence, category) = (head.fence.next(), ErrorCategory::Validation);
    let error = cut(error, draft.policy().error_chars_max);
    let defeat = Defeat { key, task, category, error: &error, cause: None };
    if defeat.park_unheld(state, head, draft) {
        return;
    }
    let finish = TaskChangeKind::Finish {
        fence,
        outcome: Outcome::Failed,
        attempts: head.attempts,
        error: Some(category),
    };
    draft.change(key, finish);
    draft.settle(task.entry.message);
    let failed = TaskFailed {
        task: identity(&key.request, task),
        error: error.clone(),
        error_category: category,
        retry_count: head.attempts,
        source: FailureSource::Budget,
        code: Some(BUDGET_EXCEEDED.to_owned()),
        duration_ms: None,
        usage: None,
        session_id: None,
        fence: Some(fence),
    };
    let mut subject = draft.task_subject(key, task);
    let by = By::component(Origin::Dispatcher);
    draft.event(&mut subject, KnownType::TaskFailed, by, Json::of(&failed));
    defeat.note(state, draft);
    report_failure(task, draft);
}

pub(crate) fn spending(sum: &UsageSum) -> Spending {
    Spending { cost_micros: sum.cost_micros, tokens: sum.tokens() }
}

fn tenant_budget(state: &State, tenant: &TenantId, at: Timestamp) -> Option<TenantBudget> {
    match state.record(&RecordKey::budget(tenant)).map(|record| &record.value) {
        Some(RecordValue::Budget(budget)) => Some(budget.at(at)),
        _ => None,
    }
}

pub(crate) fn sum_in(state: &State, key: &RecordKey) -> UsageSum {
    match state.record(key).map(|record| &record.value) {
        Some(RecordValue::Usage(sum)) => *sum,
        _ => UsageSum::default(),
    }
}

pub(crate) fn put(state: &State, key: RecordKey, value: RecordValue, draft: &mut Draft<'_, '_>) {
    let version = state.record(&key).map_or(0, |record| record.version);
    let record = Some(Record { version: version + 1, expires_at: None, value });
    draft.record(RecordWrite::Put { key, record });
}

/// What an attempt is added to. The name of the task is known once the task is here.
pub(crate) fn rows(state: &State, key: &TaskKey, now: Timestamp) -> Vec<RowKey> {
    let Some(task) = state.task(key) else { return Vec::new() };
    // The event that tells it is stamped now, or just after the task's last one.
    let at = task.entry.stream.last_timestamp().filter(|last| *last >= now).map_or(now, |last| last.plus(1));
    let mut rows: Vec<_> = sums_of(key, &task, at).into_iter().map(RowKey::Record).collect();
    rows.push(RowKey::Entity(key.tenant.clone(), Entity::system(BUDGET_ENTITY)));
    rows
}

#[cfg(test)]
mod tests {
    use tidemill_model::{Budget, JobId, MicroUsd, SessionId, TaskSpec};

    use super::*;
    use crate::kernel::command::{
        BudgetTarget, Command, Finish, Release, Report, Resume, ResumeTarget, SetBudget, Spent, SubmitTask,
    };
    use crate::kernel::commit::Commit;
    use crate::kernel::fixture::{
        Fixture, claim, completed, failed, key, spec, submit_job, tenant, timed_out, worker,
    };
    use crate::kernel::reply::{Assignment, Reply};

    fn job() -> JobId {
        JobId::from_u128(7)
    }

    /// An agent's task that waits for no other.
    fn agent(name: &str) -> TaskSpec {
        let mut spec = spec(name, &[]);
        spec.options.agent = true;
        spec
    }

    fn used(micros: u64) -> Spent {
        let usage =
            Usage { input_tokens: 10, output_tokens: 5, turns: 2, cost_micros: micros, ..Usage::default() };
        Spent { usage: Some(usage), session_id: None }
    }

    fn dollars(usd: u64) -> Budget {
        Budget { usd: Some(MicroUsd(usd * 1_000_000)), tokens: None }
    }

    fn begin(tasks: Vec<TaskSpec>, budget: Option<Budget>) -> Fixture {
        let mut fixture = Fixture::new();
        fixture
            .run(&Command::SubmitJob(crate::kernel::command::SubmitJob {
                budget,
                ..submit_job(job(), tasks)
            }))
            .unwrap();
        fixture
    }

    fn end(fixture: &mut Fixture, task: &Assignment, report: Report, spent: Spent) -> Commit {
        let finish = Finish {
            task: task.task.clone(),
            fence: task.fence,
            worker: worker(),
            report,
            spent,
            cause: None,
            digest: 0,
        };
        fixture.run(&Command::Finish(finish)).unwrap().0
    }

    fn set_budget(fixture: &mut Fixture, target: BudgetTarget, budget: Option<Budget>) {
        fixture.run(&Command::SetBudget(SetBudget { tenant: tenant(), target, budget })).unwrap();
    }

    fn sum(fixture: &Fixture, of: UsageOf<'_>) -> UsageSum {
        sum_in(&fixture.state, &RecordKey::usage(&tenant(), of))
    }

    fn texts(commit: &Commit, known: KnownType) -> Vec<serde_json::Value> {
        let of_type = commit.events.iter().filter(|event| event.event_type.as_str() == known.as_str());
        of_type.map(|event| serde_json::from_str(event.properties.as_str()).unwrap()).collect()
    }

    #[test]
    fn an_attempt_is_added_to_the_sums_however_it_ends() {
        for (report, millis, attempts, tasks) in [
            (completed(), 1, 1, 1),
            (timed_out(), 2, 1, 1),
            (failed(ErrorCategory::Auth), 700, 1, 1),
            (failed(ErrorCategory::Network), 700, 1, 0),
        ] {
            let mut fixture = begin(vec![agent("a")], None);
            let task = fixture.claim(1).remove(0);
            fixture.now = fixture.now.plus(700);
            end(&mut fixture, &task, report, used(250_000));
            let expected = UsageSum {
                attempts,
                tasks,
                input_tokens: 10,
                output_tokens: 5,
                turns: 2,
                duration_ms: millis,
                cost_micros: 250_000,
                ..UsageSum::default()
            };
            let (name, day) = (&task.spec.name, Day::of(fixture.now));
            for of in [
                UsageOf::Tenant,
                UsageOf::Job(job()),
                UsageOf::Definition(name),
                UsageOf::Day(day),
                UsageOf::Month(day.month()),
                UsageOf::DayAndDefinition(day, name),
            ] {
                assert_eq!(sum(&fixture, of), expected, "{of:?}");
            }
        }
    }

    #[test]
    fn the_last_attempt_counts_its_task_and_a_repeated_report_counts_nothing() {
        let mut task = agent("a");
        task.options.retry =
            Some(tidemill_model::RetryPolicy { max_attempts: 2, ..tidemill_model::RetryPolicy::default() });
        let mut fixture = begin(vec![task], None);
        for (attempts, tasks) in [(1, 0), (2, 1)] {
            let task = fixture.claim(1).remove(0);
            end(&mut fixture, &task, failed(ErrorCategory::Network), used(1));
            if attempts == 1 {
                // The worker did not hear, and says it again.
                end(&mut fixture, &task, failed(ErrorCategory::Network), used(1));
            }
            let sum = sum(&fixture, UsageOf::Tenant);
            assert_eq!((sum.attempts, sum.tasks, sum.cost_micros), (attempts, tasks, attempts));
            fixture.now = fixture.now.plus(60_000);
        }
    }

    #[test]
    fn an_attempt_that_says_nothing_touches_no_sum() {
        let mut fixture = begin(vec![agent("a")], Some(dollars(1)));
        let task = fixture.claim(1).remove(0);
        let commit = end(&mut fixture, &task, completed(), Spent::default());
        assert!(commit.records.is_empty(), "{:?}", commit.records);
    }

    #[test]
    fn the_day_is_that_of_the_event() {
        let mut fixture = begin(vec![agent("a"), agent("b")], None);
        let midnight = Day::of(fixture.now).next().start();
        fixture.now = midnight.minus(1);
        let tasks = fixture.claim(2);
        end(&mut fixture, &tasks[0], completed(), used(1));
        // The clock stands, so the event of the other is stamped after that of its claim: on the next day.
        assert_eq!(sum(&fixture, UsageOf::Day(Day::of(midnight))).attempts, 1);
        fixture.now = midnight.plus(5);
        end(&mut fixture, &tasks[1], completed(), used(1));
        assert_eq!(sum(&fixture, UsageOf::Day(Day::of(midnight))).attempts, 2);
        assert_eq!(sum(&fixture, UsageOf::Day(Day::of(midnight.minus(1)))).attempts, 0);
    }

    #[test]
    fn a_task_that_may_not_start_is_parked_if_it_says_so() {
        let mut waiting = agent("b");
        waiting.options.on_failure = tidemill_model::OnFailure::Park;
        let mut fixture = begin(vec![agent("a"), waiting], Some(dollars(5)));
        let first = fixture.claim(1).remove(0);
        end(&mut fixture, &first, completed(), used(5_120_000));
        let (commit, _) = fixture.run(&claim(10)).unwrap();
        assert_eq!(texts(&commit, KnownType::TaskFailed).len(), 0);
        let told = texts(&commit, KnownType::TaskProcessingFailed).remove(0);
        assert_eq!((&told["parked"], &told["counted"]), (&true.into(), &false.into()));
        assert_eq!(told["error"], "the job's budget of 5.00 USD is used up: 5.12 USD");
        let b = key(job().request_id(&tidemill_model::TaskId::trusted("b")).as_str());
        let head = |fixture: &Fixture| fixture.state.task(&b).unwrap().entry.head.clone().unwrap();
        assert!(head(&fixture).is_parked());
        assert_eq!(fixture.claim(10).len(), 0);
        // With more to spend it runs.
        set_budget(&mut fixture, BudgetTarget::Job(job()), Some(dollars(9)));
        let target = ResumeTarget::Job { job: job(), tasks: None };
        fixture.run(&Command::Resume(Resume { tenant: tenant(), target })).unwrap();
        assert_eq!(fixture.claim(10).len(), 1);
    }

    #[test]
    fn a_budget_that_is_used_up_stops_agents_and_nobody_else() {
        let mut fixture =
            begin(vec![agent("a"), agent("b"), agent("c"), spec("plain", &[])], Some(dollars(5)));
        let first = fixture.claim(1).remove(0);
        assert_eq!(first.budget_left, Some(5_000_000));
        let commit = end(&mut fixture, &first, completed(), used(5_120_000));
        let exceeded = texts(&commit, KnownType::BudgetExceeded);
        assert_eq!(exceeded.len(), 1);
        assert_eq!(
            exceeded[0],
            serde_json::json!({
                "scope": "job", "jobId": job(), "requestId": first.task.request, "limit": {"usd": 5.0},
                "spent": {"usd": 5.12, "tokens": 15}
            })
        );
        // One failure of a job fits into a commit, so the second agent comes with the next.
        let mut refused = Vec::new();
        let mut claimed = Vec::new();
        for _ in 0..3 {
            let (commit, reply) = fixture.run(&claim(10)).unwrap();
            refused.extend(texts(&commit, KnownType::TaskFailed));
            let Reply::Claimed { tasks, .. } = reply else { panic!("a claim") };
            claimed.extend(tasks.into_iter().map(|task| task.spec.task_id.to_string()));
        }
        assert_eq!(claimed, ["plain"]);
        assert_eq!(refused.len(), 2);
        for failed in &refused {
            assert_eq!(failed["error"], "the job's budget of 5.00 USD is used up: 5.12 USD");
            assert_eq!(failed["errorCategory"], "validation");
            assert_eq!((&failed["source"], &failed["code"]), (&"budget".into(), &BUDGET_EXCEEDED.into()));
            assert_eq!(failed["retryCount"], 0);
        }
    }

    #[test]
    fn a_job_goes_on_after_its_budget_was_raised() {
        let mut fixture = begin(vec![agent("a"), agent("b")], Some(dollars(1)));
        let first = fixture.claim(1).remove(0);
        end(&mut fixture, &first, completed(), used(1_000_000));
        assert!(fixture.claim(9).is_empty());
        set_budget(&mut fixture, BudgetTarget::Job(job()), Some(dollars(3)));
        let target = ResumeTarget::Job { job: job(), tasks: None };
        fixture.run(&Command::Resume(Resume { tenant: tenant(), target })).unwrap();
        let second = fixture.claim(9).remove(0);
        assert_eq!((second.run, second.budget_left), (2, Some(2_000_000)));
        let commit = end(&mut fixture, &second, completed(), used(2_000_000));
        assert_eq!(texts(&commit, KnownType::BudgetExceeded).len(), 1, "the new limit is crossed once more");
        let times: Vec<_> = commit
            .events
            .iter()
            .filter(|event| event.entity.kind.as_str() == "JOB")
            .map(|event| (event.event_type.as_str(), event.timestamp.millis()))
            .collect();
        assert!(
            matches!(times[..], [("Budget Exceeded", first), ("Job Completed", second)] if first < second),
            "{times:?}"
        );
    }

    #[test]
    fn a_tenants_budget_holds_for_its_period() {
        for (period, later_millis, is_stopped) in [
            (Period::Total, 400 * 24 * 3_600_000, true),
            (Period::Day, 24 * 3_600_000, false),
            (Period::Day, 1_000, true),
            (Period::Month, 32 * 24 * 3_600_000, false),
        ] {
            let mut fixture = begin(vec![agent("a"), agent("b")], None);
            set_budget(&mut fixture, BudgetTarget::Tenant(period), Some(dollars(2)));
            let first = fixture.claim(1).remove(0);
            let commit = end(&mut fixture, &first, completed(), used(2_000_000));
            let exceeded = texts(&commit, KnownType::BudgetExceeded);
            assert_eq!(exceeded[0]["scope"], "tenant", "{period:?}");
            fixture.now = fixture.now.plus(later_millis);
            assert_eq!(fixture.claim(9).is_empty(), is_stopped, "{period:?} after {later_millis}");
        }
    }

    #[test]
    fn what_was_spent_before_counts_when_a_budget_is_set() {
        let mut fixture = begin(vec![agent("a"), agent("b"), agent("c")], None);
        let first = fixture.claim(1).remove(0);
        end(&mut fixture, &first, completed(), used(2_000_000));
        for (target, budget, left) in [
            (BudgetTarget::Tenant(Period::Total), Some(dollars(3)), Some(1_000_000)),
            (BudgetTarget::Tenant(Period::Month), Some(dollars(4)), Some(2_000_000)),
            (BudgetTarget::Job(job()), Some(dollars(3)), Some(1_000_000)),
            (BudgetTarget::Tenant(Period::Day), None, Some(1_000_000)),
            (BudgetTarget::Job(job()), None, None),
        ] {
            set_budget(&mut fixture, target, budget);
            let task = fixture.claim(1).remove(0);
            assert_eq!(task.budget_left, left, "{target:?} {budget:?}");
            let (task, fence) = (task.task, task.fence);
            let release = Release { task, fence, worker: worker(), reason: None, spent: Spent::default() };
            fixture.run(&Command::Release(release)).unwrap();
        }
        set_budget(&mut fixture, BudgetTarget::Tenant(Period::Day), Some(dollars(2)));
        assert!(fixture.claim(9).is_empty(), "it is used up from the start");
    }

    #[test]
    fn tokens_are_counted_too_and_other_tenants_are_not_concerned() {
        let mut fixture = begin(vec![agent("a"), agent("b")], None);
        let tokens = Budget { usd: None, tokens: Some(15) };
        set_budget(&mut fixture, BudgetTarget::Tenant(Period::Total), Some(tokens));
        let mut foreign = crate::kernel::fixture::alone("theirs");
        foreign.tenant = TenantId::trusted("other");
        foreign.spec = std::sync::Arc::new(agent("task"));
        fixture.run(&Command::SubmitTask(SubmitTask { task: foreign, once: Vec::new() })).unwrap();
        let mine = |task: &Assignment| task.task.tenant == tenant();
        let first = fixture.claim(2).into_iter().find(mine).unwrap();
        assert_eq!(first.budget_left, None, "dollars are not limited");
        end(&mut fixture, &first, completed(), used(0));
        let foreign = crate::kernel::fixture::alone("theirs-2");
        let foreign = crate::kernel::commit::NewTask {
            tenant: TenantId::trusted("other"),
            spec: std::sync::Arc::new(agent("task")),
            ..foreign
        };
        fixture.run(&Command::SubmitTask(SubmitTask { task: foreign, once: Vec::new() })).unwrap();
        let tasks = fixture.claim(9);
        assert_eq!(tasks.len(), 1);
        assert_eq!(tasks[0].task.tenant.as_str(), "other");
    }

    #[test]
    fn the_session_of_the_last_attempt_goes_with_the_run() {
        let session = |name: &str| SessionId::new(name).unwrap();
        let spent = |name: Option<&str>| Spent { usage: None, session_id: name.map(session) };
        let mut fixture = begin(vec![agent("a")], None);
        let mut seen = Vec::new();
        for reported in [Some("s-1"), None, Some("s-2")] {
            let task = fixture.claim(1).remove(0);
            seen.push(task.session_id.clone());
            end(&mut fixture, &task, failed(ErrorCategory::Network), spent(reported));
            fixture.now = fixture.now.plus(3_600_000);
        }
        assert_eq!(seen, [None, Some(session("s-1")), Some(session("s-1"))]);
        let request = job().request_id(&tidemill_model::TaskId::trusted("a"));
        let task = key(request.as_str());
        let head = fixture.state.task(&task).unwrap().entry.head.clone().unwrap();
        assert_eq!(head.outcome(), Some(Outcome::Failed), "three attempts are all there are");
        let target = ResumeTarget::Task(request);
        fixture.run(&Command::Resume(Resume { tenant: tenant(), target })).unwrap();
        let task = fixture.claim(1).remove(0);
        assert_eq!((task.run, task.session_id), (2, None), "a new run begins anew");
        let (key, fence) = (task.task, task.fence);
        let reason = Some("worker shutdown".to_owned());
        let spent = Spent { session_id: Some(session("s-3")), ..used(7) };
        let release = Release { task: key, fence, worker: worker(), reason, spent };
        fixture.run(&Command::Release(release)).unwrap();
        assert_eq!(fixture.claim(1).remove(0).session_id, Some(session("s-3")));
        let sum = sum(&fixture, UsageOf::Tenant);
        assert_eq!((sum.attempts, sum.tasks, sum.cost_micros), (1, 0, 7), "what was given back is paid too");
    }
}
