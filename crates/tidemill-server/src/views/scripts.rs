//! What becomes of an event with each subscription.

use tidemill_api::{ConditionView, ExplainedView, ExplanationView, VerdictName};
use tidemill_engine::engine::{Explained, ExplainedCondition, Explanation, Verdict};

use super::View;

impl View<Explanation> for ExplanationView {
    fn of(explanation: Explanation) -> Self {
        Self {
            event_id: explanation.event.id,
            event_type: explanation.event.event_type,
            subscriptions: explanation.subscriptions.into_iter().map(ExplainedView::of).collect(),
            other_types: explanation.other_types as u64,
            truncated: explanation.is_cut,
        }
    }
}

impl View<Explained> for ExplainedView {
    fn of(explained: Explained) -> Self {
        Self {
            subscription_id: explained.subscription,
            script_id: explained.script,
            verdict: match explained.verdict {
                Verdict::Matched => VerdictName::Matched,
                Verdict::Filtered => VerdictName::Filtered,
                Verdict::Disabled => VerdictName::Disabled,
                Verdict::Before => VerdictName::Before,
                Verdict::BadRules => VerdictName::BadRules,
            },
            execution_id: explained.execution.map(|id| id.to_string()),
            conditions: explained.conditions.into_iter().map(ConditionView::of).collect(),
        }
    }
}

impl View<ExplainedCondition> for ConditionView {
    fn of(condition: ExplainedCondition) -> Self {
        Self {
            place: condition.place,
            field: condition.field,
            op: condition.operator.to_owned(),
            value: condition.value,
            actual: condition.actual,
            passed: condition.passed,
        }
    }
}
