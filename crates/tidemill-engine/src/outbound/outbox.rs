//! Deliveries begin: each in the commit of its cause. If too many wait, it is a dead letter at once.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use serde::Serialize;
use tidemill_model::workflow::WorkflowRunId;
use tidemill_model::{EventId, Json, TenantId, Timestamp};

use crate::kernel::commit::RecordWrite;
use crate::kernel::draft::Draft;
use crate::kernel::record::{DeadLetterState, RecordKey, RecordValue};
use crate::kernel::state::State;
use crate::outbound::alert_text::KnownFailure;
use crate::outbound::{
    Delivery, DeliveryId, DeliveryKey, DeliveryLetter, FailedJob, FailedJobs, JOB_FAILED, Lane, Target,
    alert_text,
};
use crate::scripts::execution::SourceEvent;
use crate::triage::Unparked;

/// Sends something on its way. If too many others of the tenant wait, it is a dead letter at once.
pub(crate) fn begin(
    tenant: &TenantId,
    target: Target,
    event: SourceEvent,
    body: Json,
    draft: &mut Draft<'_, '_>,
) -> DeliveryId {
    let now = draft.now();
    let delivery = Delivery {
        id: DeliveryId(draft.event_id()),
        target,
        event,
        body,
        attempts: 0,
        next_try_at: now,
        created_at: now,
        error: None,
        replay_of: None,
        failed_jobs: None,
    };
    let limit = draft.policy().deliveries_max;
    if delivery.target.is_alert() || draft.waiting(tenant, delivery.target.lane()) < limit {
        return put_new(tenant, delivery, draft);
    }
    let error = Arc::from(format!("{limit} deliveries of the tenant wait, and no more are taken"));
    bury(tenant, &delivery, 0, 0, &error, draft);
    delivery.id
}

pub(super) fn put_new(tenant: &TenantId, delivery: Delivery, draft: &mut Draft<'_, '_>) -> DeliveryId {
    let id = delivery.id;
    let key = RecordKey::delivery(tenant, id);
    draft.began(tenant, delivery.target.lane());
    draft.record(RecordWrite::over(key, 0, RecordValue::Delivery(Box::new(delivery))));
    id
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct WaitEnded<'a> {
    event_id: EventId,
    tenant_id: &'a TenantId,
    execution_id: &'a WorkflowRunId,
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    output: Option<&'a Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cause: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token_digest: Option<&'a Arc<str>>,
    at: Timestamp,
}

/// Tells the workflow webhook how the wait of an execution ended. The event that says so was appended last.
pub(crate) fn wait_ended(
    tenant: &TenantId,
    execution: &WorkflowRunId,
    outcome: &Unparked,
    token_digest: Option<&Arc<str>>,
    of_task: bool,
    draft: &mut Draft<'_, '_>,
) {
    let mut targets = Vec::new();
    if draft.policy().workflow_webhook {
        targets.push(Target::Workflow);
    }
    // The token of a task that waits here was made here.
    if draft.policy().task_tokens && token_digest.is_some() && !of_task {
        targets.push(Target::TaskToken);
    }
    if targets.is_empty() {
        return;
    }
    let Some(event) = draft.last_whole_event().map(SourceEvent::of) else { return };
    let (word, output, error, cause, at) = match outcome {
        Unparked::Resumed { output, at, .. } => ("resumed", Some(output), None, None, *at),
        Unparked::Failed { error, cause, at, .. } => ("failed", None, Some(&**error), Some(&**cause), *at),
        Unparked::Expired { at } => ("expired", None, Some("ParkTimeout"), None, *at),
        Unparked::WentOn { at } => ("went_on", None, None, None, *at),
    };
    let body = Json::of(&WaitEnded {
        event_id: event.id,
        tenant_id: tenant,
        execution_id: execution,
        outcome: word,
        output,
        error,
        cause,
        token_digest,
        at,
    });
    for target in targets {
        begin(tenant, target, event.clone(), body.clone(), draft);
    }
}

/// Alerts the operators of the installation. It is tried until it arrives.
pub(super) fn alert(
    tenant: &TenantId,
    kind: &str,
    text: &str,
    is_raised: bool,
    event: &SourceEvent,
    draft: &mut Draft<'_, '_>,
) {
    let targets = draft.policy().alerts;
    if targets.people
        && let Some((_, text)) = with_room(tenant, Lane::People, kind, text, draft)
    {
        begin(tenant, Target::People, event.clone(), alert_text::people(&text), draft);
    }
    if targets.webhook
        && let Some((kind, text)) = with_room(tenant, Lane::AlertWebhook, kind, text, draft)
    {
        let environment = draft.site().environment();
        let body = alert_text::webhook(kind, tenant, &environment, is_raised, &text, event, None);
        begin(tenant, Target::AlertWebhook, event.clone(), body, draft);
    }
}

/// What an alert says, by how many others wait: itself, or that no further ones are made, or nothing.
fn with_room<'a>(
    tenant: &TenantId,
    lane: Lane,
    kind: &'a str,
    text: &'a str,
    draft: &Draft<'_, '_>,
) -> Option<(&'a str, Cow<'a, str>)> {
    let limit = draft.policy().alerts_max;
    match draft.waiting(tenant, lane).cmp(&limit) {
        Ordering::Less => Some((kind, Cow::Borrowed(text))),
        Ordering::Equal => {
            let stage = draft.site().environment();
            let told = alert_text::too_many_alerts(&stage, tenant.as_str(), limit);
            Some((alert_text::TOO_MANY_ALERTS, Cow::Owned(told)))
        }
        Ordering::Greater => None,
    }
}

/// Tells people of jobs that failed, together with those that fail shortly after.
pub(crate) fn jobs_failed(
    state: &State,
    tenant: &TenantId,
    jobs: &[(FailedJob, SourceEvent)],
    draft: &mut Draft<'_, '_>,
) {
    let targets = draft.policy().alerts;
    let Some(gather_millis) = draft.policy().job_failed.as_ref().map(|told| told.gather_millis) else {
        return;
    };
    let Some(event) = jobs.first().map(|(_, event)| event.clone()) else { return };
    let places = [(targets.people, Target::People), (targets.webhook, Target::AlertWebhook)];
    for (_, target) in places.into_iter().filter(|(is_wanted, _)| *is_wanted) {
        let lane = target.lane();
        let others = gathering(state, tenant, lane, gather_millis, draft.now());
        if others.is_none() && draft.waiting(tenant, lane) >= draft.policy().alerts_max {
            // It says so, or nothing.
            let Some((kind, text)) = with_room(tenant, lane, JOB_FAILED, "", draft) else { continue };
            let body =
                alert_text::body(&target, kind, tenant, &draft.site().environment(), &text, &event, None);
            begin(tenant, target, event.clone(), body, draft);
            continue;
        }
        let mut failed = others.map_or_else(FailedJobs::default, |(_, delivery)| {
            delivery.failed_jobs.as_deref().cloned().unwrap_or_default()
        });
        for (job, _) in jobs {
            failed.add(job.clone());
        }
        // What the tasks said is looked up when it is sent.
        let environment = draft.site().environment();
        let text =
            alert_text::jobs_failed(&environment, tenant.as_str(), &failed, |_| KnownFailure::default());
        let first = others.map_or(&event, |(_, delivery)| &delivery.event);
        let body = alert_text::body(&target, JOB_FAILED, tenant, &environment, &text, first, None);
        if let Some((version, delivery)) = others {
            let key = RecordKey::delivery(tenant, delivery.id);
            let joined = Delivery { body, failed_jobs: Some(Box::new(failed)), ..delivery.clone() };
            draft.record(RecordWrite::over(key, version, RecordValue::Delivery(Box::new(joined))));
        } else {
            let now = draft.now();
            let delivery = Delivery {
                id: DeliveryId(draft.event_id()),
                target,
                event: event.clone(),
                body,
                attempts: 0,
                next_try_at: now.plus(gather_millis),
                created_at: now,
                error: None,
                replay_of: None,
                failed_jobs: Some(Box::new(failed)),
            };
            put_new(tenant, delivery, draft);
        }
    }
}

/// The alert that further failures join, with its version: nobody has tried it, and its time has not come. One that waits
/// longer than any does was made before the clock was set back, and is due.
fn gathering<'s>(
    state: &'s State,
    tenant: &TenantId,
    lane: Lane,
    gather_millis: u64,
    now: Timestamp,
) -> Option<(u64, &'s Delivery)> {
    let DeliveryKey { id, .. } = state.deliveries().gathering(tenant, lane)?;
    let record = state.record(&RecordKey::delivery(tenant, id))?;
    let RecordValue::Delivery(delivery) = &record.value else { return None };
    let left = delivery.next_try_at.since(now);
    (delivery.attempts == 0 && left > 0 && left <= gather_millis).then_some((record.version, delivery))
}

/// Reports an alert that was raised or cleared. The event that says so was appended last.
pub(crate) fn standing(
    tenant: &TenantId,
    name: &str,
    message: &str,
    is_raised: bool,
    draft: &mut Draft<'_, '_>,
) {
    let Some(event) = draft.last_whole_event().map(SourceEvent::of) else { return };
    let stage = draft.site().environment();
    let text = alert_text::standing(name, &stage, tenant.as_str(), message, is_raised);
    alert(tenant, name, &text, is_raised, &event, draft);
}

/// Tells what a check of health found. The event that says so was appended last.
pub(crate) fn health(tenant: &TenantId, text: &str, is_raised: bool, draft: &mut Draft<'_, '_>) {
    let Some(event) = draft.last_whole_event().map(SourceEvent::of) else { return };
    alert(tenant, crate::health::text::KIND, text, is_raised, &event, draft);
}

/// Keeps what will not be tried again, and tells people of it. `version` is that of an earlier letter.
pub(super) fn bury(
    tenant: &TenantId,
    delivery: &Delivery,
    attempts: u32,
    version: u64,
    error: &Arc<str>,
    draft: &mut Draft<'_, '_>,
) {
    let letter = DeliveryLetter {
        id: delivery.id,
        target: delivery.target.clone(),
        event: delivery.event.clone(),
        body: delivery.body.clone(),
        error: Arc::clone(error),
        attempts,
        failed_at: draft.now(),
        created_at: delivery.created_at,
        state: DeadLetterState::Open,
        replayed_by: None,
    };
    let text = alert_text::delivery_failure(&letter.event, letter.id);
    alert(tenant, "delivery_failure", &text, true, &letter.event, draft);
    put_letter(tenant, version, letter, draft);
}

pub(super) fn put_letter(tenant: &TenantId, version: u64, letter: DeliveryLetter, draft: &mut Draft<'_, '_>) {
    let key = RecordKey::delivery_letter(tenant, letter.id);
    draft.record(RecordWrite::over(key, version, RecordValue::DeliveryLetter(Box::new(letter))));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::command::{
        Alert, Command, DeliveryEnd, DiscardDelivery, EndDelivery, LookAfterParked, ReplayDelivery, Unpark,
    };
    use crate::kernel::fixture::{Fixture, tenant};
    use crate::kernel::policy::AlertTargets;
    use crate::kernel::reply::{Refusal, Reply};
    use crate::triage::property::{execution, publish_status, resume, status, token};
    use crate::triage::{BulkAction, ParkedKey, StatusItem};
    use tidemill_model::workflow::WorkflowStatus;

    const PEOPLE: AlertTargets = AlertTargets { people: true, webhook: false };

    fn parked(id: &str) -> Fixture {
        let mut fixture = Fixture::new();
        fixture.policy.workflow_webhook = true;
        fixture.policy.alerts = PEOPLE;
        let failed = status(id, WorkflowStatus::Failed, &["20a"]);
        let item = StatusItem { token: Some(token("digest-of-it")), ..failed };
        let now = fixture.now;
        fixture.run(&publish_status(item, now)).unwrap();
        fixture
    }

    fn pending(fixture: &Fixture) -> Vec<Delivery> {
        let of = |value: &RecordValue| match value {
            RecordValue::Delivery(delivery) => Some((**delivery).clone()),
            _ => None,
        };
        fixture.state.records().filter_map(|(_, record)| of(&record?.value)).collect()
    }

    fn letter(fixture: &Fixture, id: DeliveryId) -> DeliveryLetter {
        match &fixture.state.record(&RecordKey::delivery_letter(&tenant(), id)).unwrap().value {
            RecordValue::DeliveryLetter(letter) => (**letter).clone(),
            other => panic!("{other:?}"),
        }
    }

    fn due(fixture: &Fixture) -> Vec<DeliveryId> {
        let found = fixture.state.deliveries().due(fixture.now, 10, |_| false);
        found.due.into_iter().map(|key| key.id).collect()
    }

    fn ended(
        fixture: &mut Fixture,
        delivery: DeliveryId,
        attempt: u32,
        end: DeliveryEnd,
    ) -> Result<Reply, Refusal> {
        let command = EndDelivery { tenant: tenant(), delivery, attempt, told: 0, end };
        fixture.run(&Command::EndDelivery(command)).map(|(_, reply)| reply)
    }

    fn failed() -> DeliveryEnd {
        DeliveryEnd::Failed { error: Arc::from("answered 500") }
    }

    #[test]
    fn owners_of_tokens_are_told_where_tokens_are_theirs() {
        let unpark =
            Unpark { tenant: tenant(), execution: execution("e1"), how: resume(), by: None, reason: None };
        for (webhook, task_tokens, expected) in [
            (false, true, vec![Target::TaskToken]),
            (true, true, vec![Target::TaskToken, Target::Workflow]),
            (false, false, vec![]),
        ] {
            let mut fixture = parked("e1");
            (fixture.policy.workflow_webhook, fixture.policy.task_tokens) = (webhook, task_tokens);
            fixture.run(&Command::Unpark(unpark.clone())).unwrap();
            let mut targets: Vec<_> = pending(&fixture).into_iter().map(|delivery| delivery.target).collect();
            targets.sort_by_key(Target::name);
            assert_eq!(targets, expected);
        }
    }

    #[test]
    fn each_end_of_a_wait_is_told_with_it_and_without_the_token() {
        let fail = BulkAction::Fail { error: Arc::from("Broken"), cause: Arc::from("for good") };
        let unpark = |how| {
            let execution = execution("e1");
            Command::Unpark(Unpark { tenant: tenant(), execution, how, by: None, reason: None })
        };
        let expire = Command::LookAfterParked(LookAfterParked {
            keys: vec![ParkedKey { tenant: tenant(), execution: execution("e1") }],
        });
        for (command, later, event_type, expected) in [
            (unpark(resume()), 0, "Execution Resumed", r#""outcome":"resumed","output":{"resolved":true},"#),
            (
                unpark(fail),
                0,
                "Execution Failed",
                r#""outcome":"failed","error":"Broken","cause":"for good","#,
            ),
            (expire, u64::MAX >> 20, "Execution Expired", r#""outcome":"expired","error":"ParkTimeout","#),
        ] {
            let mut fixture = parked("e1");
            fixture.now = fixture.now.plus(later);
            let (commit, _) = fixture.run(&command).unwrap();
            let [delivery] = &pending(&fixture)[..] else { panic!("one delivery") };
            assert_eq!((&delivery.target, delivery.attempts), (&Target::Workflow, 0));
            assert_eq!(delivery.event.event_type.as_str(), event_type);
            assert!(commit.events.iter().any(|event| event.id == delivery.event.id), "it came with it");
            let body = delivery.body.as_str();
            assert!(body.contains(expected) && body.contains(r#""executionId":"e1""#), "{body}");
            assert!(body.contains(r#""tokenDigest":"digest-of-it""#), "{body}");
            assert_eq!(due(&fixture), [delivery.id]);
        }
        let mut quiet = parked("e1");
        quiet.policy.workflow_webhook = false;
        quiet.run(&unpark(resume())).unwrap();
        assert_eq!(pending(&quiet), []);
    }

    #[test]
    fn a_delivery_is_tried_four_times_and_then_kept_with_an_alert() {
        let mut fixture = parked("e1");
        fixture.run(&crate::triage::property::unpark("e1")).unwrap();
        let delivery = pending(&fixture)[0].clone();
        let id = delivery.id;
        for (attempt, pause) in [(1, 1_000), (2, 2_000), (3, 4_000)] {
            let wrong = Err(Refusal::NotDelivering { id, attempt: attempt + 1 });
            assert_eq!(ended(&mut fixture, id, attempt + 1, failed()), wrong, "no try was before it");
            let retry_at = Some(fixture.now.plus(pause));
            let reply = ended(&mut fixture, id, attempt, failed());
            assert_eq!(reply, Ok(Reply::DeliveryEnded { retry_at, is_dead: false }));
            assert_eq!(due(&fixture), []);
            fixture.now = fixture.now.plus(pause);
            assert_eq!(due(&fixture), [id]);
        }
        let reply = ended(&mut fixture, id, 4, failed());
        assert_eq!(reply, Ok(Reply::DeliveryEnded { retry_at: None, is_dead: true }));
        let kept = letter(&fixture, id);
        assert_eq!((kept.attempts, kept.state, &*kept.error), (4, DeadLetterState::Open, "answered 500"));
        assert_eq!(kept.body, delivery.body);
        let [alert] = &pending(&fixture)[..] else { panic!("one alert") };
        assert_eq!(alert.target, Target::People);
        let text = alert_text::delivery_failure(&delivery.event, id);
        assert_eq!(alert.body, alert_text::people(&text));

        // Alerts are tried for ever, and the letter stays whatever becomes of them.
        let alert = alert.id;
        for attempt in 1..=20 {
            ended(&mut fixture, alert, attempt, failed()).unwrap();
        }
        assert_eq!(pending(&fixture)[0].next_try_at, fixture.now.plus(300_000));
        ended(&mut fixture, alert, 21, DeliveryEnd::Arrived).unwrap();
        assert_eq!(pending(&fixture), []);
        assert!(fixture.state.deliveries().is_empty());
        assert_eq!(letter(&fixture, id).state, DeadLetterState::Open);
    }

    #[test]
    fn a_letter_is_replayed_once_and_never_goes() {
        let mut fixture = parked("e1");
        fixture.policy.alerts = AlertTargets::default();
        fixture.run(&crate::triage::property::unpark("e1")).unwrap();
        let id = pending(&fixture)[0].id;
        for attempt in 1..=4 {
            ended(&mut fixture, id, attempt, failed()).unwrap();
        }
        assert_eq!(pending(&fixture), [], "nobody wants alerts");
        let replay = Command::ReplayDelivery(ReplayDelivery { tenant: tenant(), letter: id });
        let Reply::DeliveryReplayed { delivery } = fixture.run(&replay).unwrap().1 else {
            panic!("a replay")
        };
        assert_ne!(delivery, id);
        assert_eq!(due(&fixture), [delivery]);
        let kept = letter(&fixture, id);
        assert_eq!((kept.state, kept.replayed_by), (DeadLetterState::Replayed, Some(delivery)));
        for command in [replay, Command::DiscardDelivery(DiscardDelivery { tenant: tenant(), letter: id })] {
            assert_eq!(fixture.run(&command).unwrap_err(), Refusal::NotOpen(id.to_string()));
        }
        ended(&mut fixture, delivery, 1, DeliveryEnd::Arrived).unwrap();
        let again = Err(Refusal::NotDelivering { id: delivery, attempt: 2 });
        assert_eq!(ended(&mut fixture, delivery, 2, DeliveryEnd::Arrived), again);
        let foreign =
            Command::DiscardDelivery(DiscardDelivery { tenant: TenantId::trusted("other"), letter: id });
        assert!(matches!(fixture.run(&foreign), Err(Refusal::NotFound { .. })));
    }

    #[test]
    fn alerts_go_to_all_who_want_them_and_recovery_too() {
        let mut fixture = Fixture::new();
        fixture.policy.alerts = AlertTargets { people: true, webhook: true };
        for (is_raised, word) in [(true, "Alert: script_failures"), (false, "Recovered: script_failures")] {
            let alert = Alert {
                tenant: tenant(),
                name: "script_failures",
                is_raised,
                message: "3 of 20 failed".to_owned(),
                properties: Json::empty_object(),
            };
            fixture.run(&Command::Alert(alert)).unwrap();
            let told = pending(&fixture);
            let targets: Vec<_> = told.iter().map(|delivery| delivery.target.name()).collect();
            assert!(targets.contains(&"slack") && targets.contains(&"alert-webhook"), "{targets:?}");
            for delivery in told {
                let body = delivery.body.as_str();
                assert!(body.contains(word) && body.contains("3 of 20 failed"), "{body}");
                ended(&mut fixture, delivery.id, 1, DeliveryEnd::Arrived).unwrap();
            }
        }
    }

    #[test]
    fn what_comes_when_too_many_wait_is_kept_as_a_letter() {
        let mut fixture = parked("e1");
        fixture.policy.deliveries_max = 1;
        for id in ["e2", "e3"] {
            let failed = status(id, WorkflowStatus::Failed, &["20a"]);
            let now = fixture.now;
            fixture.run(&publish_status(StatusItem { token: Some(token(id)), ..failed }, now)).unwrap();
        }
        for id in ["e1", "e2", "e3"] {
            fixture.run(&crate::triage::property::unpark(id)).unwrap();
        }
        let lanes = [Lane::Webhooks, Lane::People, Lane::AlertWebhook];
        assert_eq!(lanes.map(|lane| fixture.state.deliveries().count(&tenant(), lane)), [1, 2, 0]);
        let letters: Vec<_> = fixture
            .state
            .records()
            .filter_map(|(_, record)| match &record?.value {
                RecordValue::DeliveryLetter(letter) => Some((**letter).clone()),
                _ => None,
            })
            .collect();
        assert_eq!(letters.len(), 2, "nothing is lost");
        for letter in &letters {
            assert_eq!((letter.attempts, letter.state), (0, DeadLetterState::Open));
            assert_eq!(&*letter.error, "1 deliveries of the tenant wait, and no more are taken");
            let text = alert_text::delivery_failure(&letter.event, letter.id);
            let is_told = |told: &Delivery| told.body == alert_text::people(&text);
            assert!(pending(&fixture).iter().any(is_told), "{text}");
        }
        // There is no room for a replay before the one that waits has arrived.
        let replay = Command::ReplayDelivery(ReplayDelivery { tenant: tenant(), letter: letters[0].id });
        assert_eq!(fixture.run(&replay).unwrap_err(), Refusal::TooManyWaiting { limit: 1 });
        let waiting = pending(&fixture).into_iter().find(|told| !told.target.is_alert()).unwrap();
        ended(&mut fixture, waiting.id, 1, DeliveryEnd::Arrived).unwrap();
        fixture.run(&replay).unwrap();
        assert_eq!(letter(&fixture, letters[0].id).state, DeadLetterState::Replayed);
    }

    #[test]
    fn the_last_of_too_many_alerts_says_so() {
        let mut fixture = Fixture::new();
        fixture.policy.alerts = AlertTargets { people: true, webhook: true };
        fixture.policy.alerts_max = 2;
        let alert = |fixture: &mut Fixture, message: &str| {
            let alert = Alert {
                tenant: tenant(),
                name: "script_failures",
                is_raised: true,
                message: message.to_owned(),
                properties: Json::empty_object(),
            };
            fixture.run(&Command::Alert(alert)).unwrap();
            let mut texts: Vec<_> = pending(fixture)
                .iter()
                .filter(|told| told.target == Target::People)
                .map(|told| (told.id, told.body.as_str().to_owned()))
                .collect();
            texts.sort();
            texts
        };
        let webhooks = |fixture: &Fixture| fixture.state.deliveries().count(&tenant(), Lane::AlertWebhook);
        for message in ["one", "two", "three", "four", "five"] {
            alert(&mut fixture, message);
        }
        let texts = alert(&mut fixture, "six");
        let [one, two, three] = &texts[..] else { panic!("{texts:?}") };
        assert!(one.1.contains("one") && two.1.contains("two"), "{texts:?}");
        assert!(three.1.contains("too_many_alerts") && three.1.contains("2 alerts wait"), "{texts:?}");
        assert_eq!(webhooks(&fixture), 3);
        // Once people have heard, they hear again; the other place is still away.
        for (id, _) in texts {
            ended(&mut fixture, id, 1, DeliveryEnd::Arrived).unwrap();
        }
        let texts = alert(&mut fixture, "seven");
        assert!(texts.len() == 1 && texts[0].1.contains("seven"), "{texts:?}");
        assert_eq!(webhooks(&fixture), 3);
    }
}
