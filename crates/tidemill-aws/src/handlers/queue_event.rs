//! Messages of a queue as it hands them to a function, and which of them it is to hand over again.

use serde::{Deserialize, Serialize};

/// A batch of messages.
#[derive(Debug, Clone, Deserialize)]
pub struct QueueEvent {
    #[serde(rename = "Records")]
    pub records: Vec<QueueRecord>,
}

#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueRecord {
    pub message_id: String,
    pub body: String,
}

/// Which messages of a batch come again. All others are deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchAnswer {
    pub batch_item_failures: Vec<ItemFailure>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ItemFailure {
    pub item_identifier: String,
}

impl BatchAnswer {
    pub(super) fn again(&mut self, record: &QueueRecord) {
        self.batch_item_failures.push(ItemFailure { item_identifier: record.message_id.clone() });
    }

    /// Whether the whole batch is done.
    pub fn is_done(&self) -> bool {
        self.batch_item_failures.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_the_queue() {
        let event: QueueEvent =
            serde_json::from_str(r#"{"Records":[{"messageId":"m","receiptHandle":"r","body":"{}"}]}"#)
                .unwrap();
        let mut answer = BatchAnswer::default();
        answer.again(&event.records[0]);
        assert_eq!(
            serde_json::to_string(&answer).unwrap(),
            r#"{"batchItemFailures":[{"itemIdentifier":"m"}]}"#
        );
    }
}
