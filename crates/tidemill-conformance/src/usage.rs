//! What agents used, summed in the same commit that tells it; and budgets, which stop them.

use std::collections::BTreeMap;

use serde_json::json;
use tidemill_model::events::access_path::AccessPath;
use tidemill_model::{
    Budget, Day, Entity, ErrorCategory, Event, JobId, JobStatus, KnownType, MicroUsd, Period, RequestId,
    SessionId, TaskName, TaskSpec, TenantId, Usage, UsageSum,
};

use super::lab::{completed, value};
use super::shape::{HOUR, acme, alone, graph, job_of, other};
use super::{Lab, TestWorld};
use tidemill_engine::command::Spent;
use tidemill_engine::engine::{JobRequest, Signal, TaskRequest, UsageBy, UsageQuery, WorkReport};
use tidemill_engine::reply::Assignment;

const DAY: u64 = 24 * HOUR;

fn usage(tokens: u64, micros: u64) -> Usage {
    Usage {
        input_tokens: tokens,
        output_tokens: 2 * tokens,
        cache_read_tokens: 3 * tokens,
        cache_write_tokens: 4 * tokens,
        turns: 3,
        cost_micros: micros,
    }
}

fn spent(usage: Usage) -> Spent {
    Spent { usage: Some(usage), session_id: None }
}

fn usd(dollars: u64) -> Budget {
    Budget { usd: Some(MicroUsd(dollars * 1_000_000)), tokens: None }
}

/// Tasks that agents carry out, written as `a b c<a`.
fn agents(text: &str) -> Vec<TaskSpec> {
    let mut tasks = graph(text);
    for task in &mut tasks {
        task.options.agent = true;
    }
    tasks
}

fn named(name: &str, mut task: TaskSpec) -> TaskSpec {
    task.name = TaskName::new(name).expect("a name");
    task
}

fn query(tenant: &TenantId, by: UsageBy) -> UsageQuery {
    UsageQuery { tenant: tenant.clone(), by, from: None, to: None, after: None, limit: 1_000 }
}

/// The sums of a tenant as they are kept, by what they are about.
async fn kept<W: TestWorld>(lab: &Lab<W>, tenant: &TenantId) -> BTreeMap<String, UsageSum> {
    let mut sums = BTreeMap::new();
    for (by, name) in [
        (UsageBy::Job, "job"),
        (UsageBy::Definition, "definition"),
        (UsageBy::Day, "day"),
        (UsageBy::Tenant, "tenant"),
    ] {
        let page = lab.engine.usage(query(tenant, by)).await.expect("the sums are there");
        assert!(page.is_last);
        sums.extend(page.rows.into_iter().map(|row| (format!("{name} {}", row.key), row.sum)));
    }
    sums
}

/// The same sums as the events tell them.
async fn told<W: TestWorld>(lab: &Lab<W>, tenant: &TenantId) -> BTreeMap<String, UsageSum> {
    let events = lab.events_of(tenant.clone(), AccessPath::Tenant).await;
    let mut names = BTreeMap::new();
    let mut sums: BTreeMap<String, UsageSum> = BTreeMap::new();
    sums.insert(format!("tenant {tenant}"), UsageSum::default());
    for event in &events {
        let properties = value(&event.properties);
        let request = properties["requestId"].as_str().unwrap_or_default().to_owned();
        if event.event_type.as_str() == KnownType::TaskPending.as_str() {
            names.insert(request.clone(), properties["name"].as_str().expect("a name").to_owned());
        }
        let Ok(used) = serde_json::from_value::<Usage>(properties["usage"].clone()) else { continue };
        let elapsed = properties["durationMs"].as_u64().or_else(|| properties["elapsedMs"].as_u64());
        let sum = UsageSum::default().plus(&used, elapsed.expect("a duration"), is_end(event, &events));
        let request = RequestId::new(&request).expect("an id");
        let mut keys = vec![
            format!("tenant {tenant}"),
            format!("day {}", Day::of(event.timestamp)),
            format!("definition {}", names[request.as_str()]),
        ];
        keys.extend(request.job_part().map(|job| format!("job {job}")));
        for key in keys {
            let known = sums.entry(key).or_default();
            *known = known.and(&sum);
        }
    }
    sums
}

/// Whether the run ends with an attempt: by its event, or because the next event of the task says so.
fn is_end(event: &Event, events: &[Event]) -> bool {
    if event.event_type.as_str() != KnownType::TaskProcessingFailed.as_str() {
        return true;
    }
    let later =
        events.iter().filter(|other| other.entity == event.entity && other.position() > event.position());
    let next = later.min_by_key(|other| other.position());
    next.is_some_and(|next| {
        next.event_type.as_str() == KnownType::TaskFailed.as_str()
            && value(&next.properties)["source"] == "dlq"
    })
}

async fn check<W: TestWorld>(lab: &Lab<W>, tenant: &TenantId) {
    assert_eq!(kept(lab, tenant).await, told(lab, tenant).await, "sums and events of {tenant}");
}

/// Every attempt that says what it used is in the sums, whatever became of it, also after a restart.
pub async fn sums_are_those_of_the_events<W: TestWorld>(mut lab: Lab<W>) {
    let mut jobs = Vec::new();
    for round in 0..3_u64 {
        let tasks = agents("a b c d e");
        let tasks = tasks.into_iter().zip(["scrape", "tags", "tags", "a/b", "scrape"]);
        let tasks = tasks.map(|(task, name)| named(name, task)).collect();
        jobs.push(lab.engine.submit_job(job_of(tasks)).await.expect("the job is accepted").job);
        lab.engine.submit_task(alone(&format!("alone-{round}"))).await.expect("the task is accepted");
        let theirs = TaskRequest { tenant: other(), ..alone(&format!("theirs-{round}")) };
        lab.engine.submit_task(theirs).await.expect("the task is accepted");
        let tasks = lab.claim(9).await;
        assert_eq!(tasks.len(), 7, "all are claimed");
        lab.pass(1_234);
        for (at, task) in (1..).zip(&tasks) {
            let report = match (at + round) % 4 {
                0 => completed("{}"),
                1 => WorkReport::timed_out(1_000, 1_001, Signal::Kill),
                2 => WorkReport::failed("no", ErrorCategory::Auth),
                _ => WorkReport::failed("not now", ErrorCategory::Network),
            };
            // One of them says nothing.
            let report = if at == 3 { report } else { report.with_spent(spent(usage(at, 100 * at + round))) };
            lab.report(task, report).await.expect("the outcome is taken");
        }
        for tenant in [acme(), other()] {
            check(&lab, &tenant).await;
        }
        lab.pass(DAY - HOUR);
        lab = lab.reopen_if_it_can().await;
        for tenant in [acme(), other()] {
            check(&lab, &tenant).await;
        }
        // Those that failed for now are tried again, given back once, and then used up.
        for task in lab.claim(9).await {
            let (key, fence, worker) = (task.task.clone(), task.fence, super::shape::worker("worker-1"));
            let reason = Some("shutdown".to_owned());
            let released = lab.engine.release_spent(key, fence, worker, reason, spent(usage(1, 1))).await;
            released.expect("it is held");
        }
        for _ in 0..3 {
            lab.pass(HOUR);
            for task in lab.claim(9).await {
                let report = WorkReport::failed("not now", ErrorCategory::Network);
                lab.report(&task, report.with_spent(spent(usage(2, 2)))).await.expect("the outcome is taken");
            }
        }
        check(&lab, &acme()).await;
    }
    for job in jobs {
        let sum =
            lab.engine.job_usage(&acme(), job).await.expect("the backend works").expect("it used something");
        assert_eq!(Some(&sum), kept(&lab, &acme()).await.get(&format!("job {job}")));
        assert_eq!(lab.engine.job_usage(&other(), job).await.expect("the backend works"), None);
    }
}

/// Sums are given by pages and for some days.
pub async fn sums_are_listed<W: TestWorld>(lab: Lab<W>) {
    let first = Day::of(lab.now());
    let mut jobs: Vec<JobId> = Vec::new();
    for day in 0..4_u64 {
        for name in ["scrape", "tags"] {
            let tasks = agents("a").into_iter().map(|task| named(name, task)).collect();
            jobs.push(lab.engine.submit_job(job_of(tasks)).await.expect("the job is accepted").job);
            let task = lab.claim_one().await;
            let report = completed("{}").with_spent(spent(usage(1, 10 * (day + 1))));
            lab.report(&task, report).await.expect("the outcome is taken");
        }
        lab.pass(DAY);
    }
    let (second, third) = (first.next(), first.next().next());
    let all = (None, None);
    let middle = (Some(second), Some(third));
    let newest: Vec<String> = jobs.iter().rev().map(JobId::to_string).collect();
    let of_job = |at: usize| (newest[at].clone(), [40, 40, 30, 30, 20, 20, 10, 10][at]);
    let text = |day: Day| day.to_string();
    for (by, (from, to), expected) in [
        (UsageBy::Tenant, all, vec![("acme".to_owned(), 200)]),
        (UsageBy::Tenant, middle, vec![("acme".to_owned(), 100)]),
        (UsageBy::Tenant, (Some(third.next().next()), None), vec![("acme".to_owned(), 0)]),
        (UsageBy::Definition, all, vec![("scrape".to_owned(), 100), ("tags".to_owned(), 100)]),
        (UsageBy::Definition, middle, vec![("scrape".to_owned(), 50), ("tags".to_owned(), 50)]),
        (UsageBy::Definition, (None, Some(first)), vec![("scrape".to_owned(), 10), ("tags".to_owned(), 10)]),
        (
            UsageBy::Day,
            all,
            vec![(text(first), 20), (text(second), 40), (text(third), 60), (text(third.next()), 80)],
        ),
        (UsageBy::Day, middle, vec![(text(second), 40), (text(third), 60)]),
        (UsageBy::Day, (Some(third.next()), None), vec![(text(third.next()), 80)]),
        (UsageBy::Job, all, (0..8).map(of_job).collect()),
        (UsageBy::Job, middle, (2..6).map(of_job).collect()),
        (UsageBy::Job, (None, Some(first)), (6..8).map(of_job).collect()),
    ] {
        for limit in [1, 3, 1_000] {
            let mut found = Vec::new();
            let mut after = None;
            loop {
                let page = UsageQuery { from, to, after: after.take(), limit, ..query(&acme(), by) };
                let page = lab.engine.usage(page).await.expect("the sums are there");
                assert!(page.rows.len() <= limit);
                found.extend(page.rows.iter().map(|row| (row.key.clone(), row.sum.cost_micros)));
                if page.is_last {
                    break;
                }
                after = page.rows.last().map(|row| row.key.clone());
            }
            assert_eq!(found, expected, "{by:?} from {from:?} to {to:?} by {limit}");
        }
    }
    let backwards = UsageQuery { from: Some(second), to: Some(first), ..query(&acme(), UsageBy::Day) };
    let error = lab.engine.usage(backwards).await.expect_err("it is refused").to_string();
    assert!(error.starts_with("from is "), "{error}");
    for limit in [0, 1_001] {
        let error = lab.engine.usage(UsageQuery { limit, ..query(&acme(), UsageBy::Job) }).await;
        assert!(error.is_err(), "{limit}");
    }
}

fn exceeded(events: &[Event]) -> Vec<serde_json::Value> {
    let of_type =
        events.iter().filter(|event| event.event_type.as_str() == KnownType::BudgetExceeded.as_str());
    of_type.map(|event| value(&event.properties)).collect()
}

async fn finish_spending<W: TestWorld>(lab: &Lab<W>, task: &Assignment, micros: u64) {
    let report = completed("{}").with_spent(spent(usage(1, micros)));
    lab.report(task, report).await.expect("the outcome is taken");
}

/// A job's budget stops its agents, survives a restart, and lets them go on once it was raised.
pub async fn a_jobs_budget_stops_its_agents<W: TestWorld>(lab: Lab<W>) {
    let request = JobRequest { budget: Some(usd(5)), ..job_of(agents("a b<a")) };
    let job = lab.engine.submit_job(request).await.expect("the job is accepted").job;
    let task = lab.claim_one().await;
    assert_eq!(task.budget_left, Some(5_000_000));
    finish_spending(&lab, &task, 5_120_000).await;
    let told = exceeded(&lab.job_history(job).await);
    let expected = json!([{
        "scope": "job", "jobId": job, "requestId": task.task.request, "limit": { "usd": 5.0 },
        "spent": { "usd": 5.12, "tokens": 10 }
    }]);
    assert_eq!(json!(told), expected);
    let lab = lab.reopen_if_it_can().await;
    assert!(lab.claim(9).await.is_empty(), "nothing may start");
    assert_eq!(lab.status(job).await, JobStatus::Failed);
    let events = lab.history(&job.request_id(&super::shape::task_id("b"))).await;
    let failed = value(&events.last().expect("it failed").properties);
    assert_eq!(failed["error"], "the job's budget of 5.00 USD is used up: 5.12 USD");
    assert_eq!(failed["source"], "budget");
    assert_eq!(failed["code"], "BUDGET_EXCEEDED");
    assert_eq!(failed["errorCategory"], "validation");
    lab.check_job(job).await;

    lab.engine.set_job_budget(acme(), job, Some(usd(9))).await.expect("the budget is raised");
    let foreign = lab.engine.set_job_budget(other(), job, Some(usd(9))).await;
    assert!(super::lab::is_not_found(&foreign), "another tenant does not see the job");
    let lab = lab.reopen_if_it_can().await;
    lab.engine.resume_job(acme(), job, None).await.expect("it is resumed");
    let task = lab.claim_one().await;
    assert_eq!((task.run, task.budget_left), (2, Some(3_880_000)));
    let name = "the job's budget of 9.00 USD, of which 5.12 USD were spent before";
    assert_eq!(task.budget_name.as_deref(), Some(name));
    finish_spending(&lab, &task, 3_880_000).await;
    assert_eq!(lab.status(job).await, JobStatus::Completed);
    assert_eq!(exceeded(&lab.job_history(job).await).len(), 2, "one for each crossing");
    lab.check_job(job).await;
    check(&lab, &acme()).await;
}

/// A tenant's budget counts for its period and for nobody else.
pub async fn a_tenants_budget_stops_its_agents<W: TestWorld>(lab: Lab<W>) {
    let agent = |tenant: TenantId, id: &str| {
        let mut request = TaskRequest { tenant, ..alone(id) };
        request.options.agent = true;
        request
    };
    lab.engine.set_budget(acme(), Period::Day, Some(usd(1))).await.expect("the budget is set");
    lab.engine.submit_task(agent(acme(), "t-1")).await.expect("the task is accepted");
    let task = lab.claim_one().await;
    assert_eq!(task.budget_left, Some(1_000_000));
    let name = "the tenant's budget of 1.00 USD a day, of which 0.00 USD were spent before";
    assert_eq!(task.budget_name.as_deref(), Some(name));
    finish_spending(&lab, &task, 1_000_000).await;
    let lab = lab.reopen_if_it_can().await;
    let events = lab.events(AccessPath::Entity(Entity::system("budget"))).await;
    let expected = json!([{
        "scope": "tenant", "requestId": "t-1", "limit": { "usd": 1.0 }, "period": "day",
        "spent": { "usd": 1.0, "tokens": 10 }
    }]);
    assert_eq!(json!(exceeded(&events)), expected);
    let known = lab.engine.budget(&acme()).await.expect("the backend works").expect("there is one");
    assert_eq!((known.period, known.allowance.spent.cost_micros), (Period::Day, 1_000_000));
    assert_eq!(lab.engine.budget(&other()).await.expect("the backend works"), None);

    lab.engine.submit_task(agent(acme(), "t-2")).await.expect("the task is accepted");
    lab.engine.submit_task(agent(other(), "t-2")).await.expect("the task is accepted");
    lab.engine.submit_task(alone("plain")).await.expect("the task is accepted");
    let mut claimed: Vec<_> = lab.claim(9).await.into_iter().map(|task| task.task).collect();
    claimed.extend(lab.claim(9).await.into_iter().map(|task| task.task));
    claimed.sort();
    let found: Vec<_> = claimed.iter().map(|key| (key.tenant.as_str(), key.request.as_str())).collect();
    assert_eq!(found, [("acme", "plain"), ("other", "t-2")]);

    lab.pass(DAY);
    lab.engine.resume_task(acme(), RequestId::trusted("t-2")).await.expect("it is resumed");
    let tasks = lab.claim_for(&acme(), 9).await;
    let task = tasks.iter().find(|task| task.task.request.as_str() == "t-2").expect("it may start");
    assert_eq!(task.budget_left, Some(1_000_000), "a new day has begun");
    lab.engine.set_budget(acme(), Period::Total, None).await.expect("the budget is removed");
    assert_eq!(lab.engine.budget(&acme()).await.expect("the backend works"), None);
    let nothing = lab.engine.set_budget(acme(), Period::Total, Some(Budget::default())).await;
    assert!(nothing.is_err(), "a budget limits something");
}

/// The session of an attempt that failed for now goes to the next one of the run, also after a restart.
pub async fn a_session_goes_to_the_next_attempt<W: TestWorld>(lab: Lab<W>) {
    let job = lab.engine.submit_job(job_of(agents("a"))).await.expect("the job is accepted").job;
    let task = lab.claim_one().await;
    assert_eq!(task.session_id, None);
    let session = SessionId::new("5b2f0e3c-0000-4000-8000-000000000001").expect("an id");
    let told = Spent { usage: None, session_id: Some(session.clone()) };
    let report = WorkReport::failed("not now", ErrorCategory::Network).with_spent(told);
    lab.report(&task, report).await.expect("the outcome is taken");
    let request = job.request_id(&super::shape::task_id("a"));
    let last = lab.history(&request).await.pop().expect("an event");
    assert_eq!(value(&last.properties)["sessionId"], session.as_str());
    let lab = lab.reopen_if_it_can().await;
    lab.pass(HOUR);
    let task = lab.claim_one().await;
    assert_eq!((task.attempt, task.session_id.as_ref()), (2, Some(&session)));
    let report = WorkReport::failed("no", ErrorCategory::Auth);
    lab.report(&task, report).await.expect("the outcome is taken");
    lab.engine.resume_job(acme(), job, None).await.expect("it is resumed");
    assert_eq!(lab.claim_one().await.session_id, None, "a new run begins anew");
}
