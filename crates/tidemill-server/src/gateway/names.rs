//! What clients of AWS call the parts of this server.

/// The account that all names belong to.
pub(crate) const ACCOUNT: &str = "000000000000";

/// The names of the one queue, table, bus and bucket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GatewayNames {
    /// The last segment of `SQS_QUEUE_URL`.
    pub queue: String,
    pub table: String,
    pub bus: String,
    pub bucket: String,
    /// The region in ARNs. Clients may sign for any.
    pub region: String,
}

impl GatewayNames {
    /// Where messages go that are given up.
    pub fn dead_letter_queue(&self) -> String {
        format!("{}-dlq", self.queue)
    }
}

impl Default for GatewayNames {
    fn default() -> Self {
        Self {
            queue: "task-queue".to_owned(),
            table: "dev-unifiedEvents".to_owned(),
            bus: "default".to_owned(),
            bucket: "tidemill".to_owned(),
            region: "eu-west-1".to_owned(),
        }
    }
}
