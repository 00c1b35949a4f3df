//! What became of task tokens.

use tidemill_api::{OutcomeName, OutcomeView, TokenOutcomeName, TokenOutcomeView, TokenTakenName};
use tidemill_engine::engine::TokenOutcome;
use tidemill_engine::triage::{TokenTaken, Unparked};

use super::View;

impl View<TokenTaken> for TokenTakenName {
    fn of(taken: TokenTaken) -> Self {
        match taken {
            TokenTaken::Waits => Self::Parked,
            TokenTaken::Used => Self::Used,
            TokenTaken::Expired => Self::Expired,
            TokenTaken::Replaced => Self::Replaced,
            TokenTaken::Foreign => Self::Foreign,
            TokenTaken::Late => Self::Late,
        }
    }
}

impl View<&Unparked> for OutcomeView {
    fn of(outcome: &Unparked) -> Self {
        let text = |text: &Option<std::sync::Arc<str>>| text.as_ref().map(ToString::to_string);
        let empty = |kind| Self {
            kind,
            at: outcome.at(),
            output: None,
            error: None,
            cause: None,
            by: None,
            reason: None,
        };
        match outcome {
            Unparked::Resumed { output, by, reason, .. } => Self {
                output: Some(output.clone()),
                by: text(by),
                reason: text(reason),
                ..empty(OutcomeName::Resumed)
            },
            Unparked::Failed { error, cause, by, reason, .. } => Self {
                error: Some(error.to_string()),
                cause: Some(cause.to_string()),
                by: text(by),
                reason: text(reason),
                ..empty(OutcomeName::Failed)
            },
            Unparked::Expired { .. } => empty(OutcomeName::Expired),
            Unparked::WentOn { .. } => empty(OutcomeName::WentOn),
        }
    }
}

impl View<&TokenOutcome> for TokenOutcomeView {
    fn of(outcome: &TokenOutcome) -> Self {
        let (state, outcome) = match outcome {
            TokenOutcome::Waiting => (TokenOutcomeName::Waiting, None),
            TokenOutcome::Ended(how) => (TokenOutcomeName::Ended, Some(OutcomeView::of(how))),
            TokenOutcome::Replaced => (TokenOutcomeName::Replaced, None),
        };
        Self { state, outcome }
    }
}
