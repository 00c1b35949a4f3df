//! Which errors or executions a command means.

use clap::Args;
use serde_json::{Map, Value};

use crate::client::Query;

/// Conditions that must all hold.
#[derive(Args, Debug, Clone, Default)]
pub(super) struct WorkflowFilter {
    /// Only this code, such as 60001
    #[arg(long, value_name = "CODE")]
    pub(super) code: Option<String>,
    /// Only codes of this type: their first two digits
    #[arg(long = "type", value_name = "TYPE")]
    error_type: Option<String>,
    /// Only this one, where an event or a label names one
    #[arg(long, value_name = "PLACE")]
    county: Option<String>,
    /// Only this phase
    #[arg(long)]
    phase: Option<String>,
    /// Only this step
    #[arg(long)]
    step: Option<String>,
}

impl WorkflowFilter {
    fn fields(&self) -> [(&'static str, Option<&String>); 5] {
        [
            ("code", self.code.as_ref()),
            ("type", self.error_type.as_ref()),
            ("county", self.county.as_ref()),
            ("phase", self.phase.as_ref()),
            ("step", self.step.as_ref()),
        ]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.fields().iter().all(|(_, value)| value.is_none())
    }

    pub(super) fn query(&self) -> Query {
        self.fields().into_iter().fold(Query::new(), |query, (name, value)| query.maybe(name, value))
    }

    pub(super) fn body(&self) -> Map<String, Value> {
        let given = self.fields().into_iter();
        given.filter_map(|(name, value)| Some((name.to_owned(), Value::from(value?.as_str())))).collect()
    }
}
