//! Waits: an execution that is parked, its token, and the end of it.

use std::sync::Arc;

use tidemill_model::workflow::{ErrorCode, WorkflowRunId};
use tidemill_model::{TenantId, Timestamp};

use crate::kernel::draft::Draft;
use crate::kernel::record::{RecordKey, RecordValue};
use crate::kernel::state::State;
use crate::outbound::outbox;
use crate::triage::ingest::keep;
use crate::triage::notes::Held;
use crate::triage::{
    CODES_MAX, NewToken, Parked, StoredToken, TokenState, TokenTaken, TriageExecution, Unparked,
};

/// Lets an execution wait for somebody with this token. It is found by the codes it was parked with, and by all others
/// that it had before: those may be open too. Says what became of the token.
pub(crate) fn park(
    state: &State,
    tenant: &TenantId,
    held: Held,
    token: &NewToken,
    codes: &[ErrorCode],
    park_millis: Option<u64>,
    draft: &mut Draft<'_, '_>,
) -> Option<TokenTaken> {
    let now = draft.now();
    let known = draft.notes().execution(held).cloned()?;
    let place = draft.notes().find(state, RecordKey::token(tenant, &token.digest));
    let stands = known.parked && known.token_digest.as_ref() == Some(&token.digest);
    if stands {
        more_codes(state, tenant, held, codes, draft);
        return Some(TokenTaken::Waits);
    }
    let stored = draft.notes().token(place).filter(|stored| !may_wait_again(&known, stored, token));
    if let Some(reason) = stored.map(|stored| why_not(&known, stored)) {
        // Nobody can wait with it.
        more_codes(state, tenant, held, codes, draft);
        return Some(reason);
    }
    if let Some(old) = known.token_digest.as_ref().filter(|old| **old != token.digest) {
        leave_token(state, tenant, old, &known, draft);
    }
    put_token(place, &known.id, token, TokenState::Unused, draft);
    let millis = park_millis.unwrap_or(draft.policy().park_millis);
    let mut listed = Vec::new();
    add_codes(&mut listed, codes);
    add_codes(&mut listed, &known.codes);
    let parked = Parked {
        execution: known.id.clone(),
        since: now,
        deadline: now.plus(millis),
        alarm_at: now.plus(millis / 10 * 9),
        is_told: false,
        codes: listed,
        cell: known.cell.clone(),
        task: known.task.clone(),
    };
    let place = draft.notes().find(state, RecordKey::parked(tenant, &known.id));
    draft.notes().put(place, Some(RecordValue::Parked(Arc::new(parked))), None);
    draft.notes().change_execution(held, |known| {
        known.parked = true;
        known.token = TokenState::Unused;
        known.token_digest = Some(Arc::clone(&token.digest));
        known.outcome = None;
    });
    keep(held, draft);
    Some(TokenTaken::Waits)
}

/// Why an execution cannot wait with a token that is known.
fn why_not(known: &TriageExecution, stored: &StoredToken) -> TokenTaken {
    match stored.state {
        _ if stored.execution != known.id => TokenTaken::Foreign,
        TokenState::Expired => TokenTaken::Expired,
        TokenState::Replaced => TokenTaken::Replaced,
        TokenState::Used | TokenState::Unused | TokenState::None => TokenTaken::Used,
    }
}

fn add_codes(listed: &mut Vec<ErrorCode>, codes: &[ErrorCode]) {
    for code in codes {
        if listed.len() < CODES_MAX && !listed.contains(code) {
            listed.push(code.clone());
        }
    }
}

/// Whether an execution may wait with a token again: with its newest one, if the execution went on without it.
fn may_wait_again(known: &TriageExecution, stored: &StoredToken, token: &NewToken) -> bool {
    stored.execution == known.id
        && stored.state == TokenState::Replaced
        && known.token_digest.as_ref() == Some(&token.digest)
}

/// Errors that came while an execution waits: it is found by their codes too.
pub(crate) fn more_codes(
    state: &State,
    tenant: &TenantId,
    held: Held,
    codes: &[ErrorCode],
    draft: &mut Draft<'_, '_>,
) {
    let Some(id) = draft.notes().execution(held).filter(|known| known.parked).map(|known| known.id.clone())
    else {
        return;
    };
    let place = draft.notes().find(state, RecordKey::parked(tenant, &id));
    let Some(parked) = draft.notes().parked(place) else { return };
    let mut listed = parked.codes.clone();
    add_codes(&mut listed, codes);
    if listed.len() > parked.codes.len() {
        let parked = Parked { codes: listed, ..parked.clone() };
        draft.notes().put(place, Some(RecordValue::Parked(Arc::new(parked))), None);
    }
}

/// A workflow that went on by itself no longer waits.
pub(crate) fn went_on(
    state: &State,
    tenant: &TenantId,
    held: Held,
    at: Timestamp,
    draft: &mut Draft<'_, '_>,
) {
    if draft.notes().execution(held).is_some_and(|known| known.parked) {
        end_wait(state, tenant, held, Unparked::WentOn { at }, TokenState::Replaced, draft);
    }
}

/// Ends the wait of an execution.
pub(crate) fn end_wait(
    state: &State,
    tenant: &TenantId,
    held: Held,
    outcome: Unparked,
    token: TokenState,
    draft: &mut Draft<'_, '_>,
) {
    let Some(known) = draft.notes().execution(held) else { return };
    let (id, digest, of_task) = (known.id.clone(), known.token_digest.clone(), known.task.is_some());
    if let Some(digest) = &digest {
        turn_token(state, tenant, digest, token, draft);
    }
    // If the execution runs elsewhere and went on, the holder of the token let it go on and knows.
    if of_task || !matches!(outcome, Unparked::WentOn { .. }) {
        outbox::wait_ended(tenant, &id, &outcome, digest.as_ref(), of_task, draft);
    }
    let place = draft.notes().find(state, RecordKey::parked(tenant, &id));
    draft.notes().put(place, None, None);
    draft.notes().change_execution(held, |known| {
        known.parked = false;
        known.token = token;
        known.outcome = Some(outcome);
    });
    keep(held, draft);
}

pub(crate) fn put_token(
    place: Held,
    execution: &WorkflowRunId,
    token: &NewToken,
    state: TokenState,
    draft: &mut Draft<'_, '_>,
) {
    let now = draft.now();
    let (execution, sealed) = (execution.clone(), Arc::clone(&token.sealed));
    let stored = StoredToken { execution, state, since: now, sealed, outcome: None };
    let expires_at = (state != TokenState::Unused).then(|| now.plus(draft.policy().triage_millis));
    draft.notes().put(place, Some(RecordValue::Token(Box::new(stored))), expires_at);
}

/// Lets a token rest that another one takes the place of. What became of it is kept with it.
fn leave_token(
    state: &State,
    tenant: &TenantId,
    digest: &Arc<str>,
    known: &TriageExecution,
    draft: &mut Draft<'_, '_>,
) {
    if known.parked {
        turn_token(state, tenant, digest, TokenState::Replaced, draft);
        return;
    }
    let place = draft.notes().find(state, RecordKey::token(tenant, digest));
    let Some(stored) = draft.notes().token(place).filter(|stored| stored.outcome.is_none()).cloned() else {
        return;
    };
    let kept = StoredToken { outcome: known.outcome.clone(), ..stored };
    let expires_at = kept.since.max(draft.now()).plus(draft.policy().triage_millis);
    draft.notes().put(place, Some(RecordValue::Token(Box::new(kept))), Some(expires_at));
}

/// Changes what became of a token.
fn turn_token(
    state: &State,
    tenant: &TenantId,
    digest: &Arc<str>,
    to: TokenState,
    draft: &mut Draft<'_, '_>,
) {
    let expires_at = draft.now().plus(draft.policy().triage_millis);
    let place = draft.notes().find(state, RecordKey::token(tenant, digest));
    if let Some(token) = draft.notes().token(place).cloned() {
        let turned = StoredToken { state: to, ..token };
        draft.notes().put(place, Some(RecordValue::Token(Box::new(turned))), Some(expires_at));
    }
}
