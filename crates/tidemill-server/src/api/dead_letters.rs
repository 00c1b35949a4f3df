//! Dead letters.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tidemill_engine::record::{DeadLetter, DeadLetterState};

/// A message that is not delivered again unless somebody replays it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "DeadLetter")]
pub struct DeadLetterView {
    pub id: String,
    pub request_id: String,
    pub run: u32,
    pub reason: String,
    /// Epoch milliseconds.
    pub since: u64,
    pub state: LetterState,
}

/// What became of a dead letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(rename = "DeadLetterState")]
pub enum LetterState {
    Open,
    Replayed,
    Discarded,
}

/// A dead letter's task runs again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Replayed {
    pub id: String,
    pub request_id: String,
}

impl From<&DeadLetter> for DeadLetterView {
    fn from(letter: &DeadLetter) -> Self {
        Self {
            id: format!("{:032x}", letter.message.0),
            request_id: letter.request.to_string(),
            run: letter.run,
            reason: letter.reason.to_string(),
            since: letter.since.millis(),
            state: letter.state.into(),
        }
    }
}

impl From<DeadLetterState> for LetterState {
    fn from(state: DeadLetterState) -> Self {
        match state {
            DeadLetterState::Open => Self::Open,
            DeadLetterState::Replayed => Self::Replayed,
            DeadLetterState::Discarded => Self::Discarded,
        }
    }
}
