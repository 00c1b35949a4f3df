//! What ran: the last attempt of a task as it was resolved.

use tidemill_api::{RanDependencyView, RanPromptView, RanVariableView, RanView, VariableOrigin};
use tidemill_engine::engine::{Ran, RanDependency, RanOrigin, RanVariable};

use super::View;

impl View<Ran> for RanView {
    fn of(ran: Ran) -> Self {
        Self {
            run: ran.run,
            fence: ran.fence.0,
            worker_id: ran.worker_id,
            process_id: ran.process_id,
            started_at: ran.started_at.millis(),
            directory: ran.directory,
            changed_since: ran.changed_since,
            runner: ran.runner,
            command: ran.command,
            arguments: ran.arguments,
            script: ran.script,
            prompts: ran
                .prompts
                .into_iter()
                .map(|prompt| RanPromptView {
                    step: prompt.step,
                    text: prompt.text,
                    filled: prompt.is_filled,
                })
                .collect(),
            variables: ran.variables.into_iter().map(RanVariableView::of).collect(),
            dependencies: ran.dependencies.into_iter().map(RanDependencyView::of).collect(),
            dependencies_omitted: ran.dependencies_omitted,
        }
    }
}

impl View<RanVariable> for RanVariableView {
    fn of(variable: RanVariable) -> Self {
        let origin = match variable.origin {
            RanOrigin::Worker => VariableOrigin::Worker,
            RanOrigin::Secret => VariableOrigin::Secret,
            RanOrigin::Task => VariableOrigin::Task,
            RanOrigin::Tidemill => VariableOrigin::Tidemill,
        };
        Self { name: variable.name, value: variable.value, origin }
    }
}

impl View<RanDependency> for RanDependencyView {
    fn of(dependency: RanDependency) -> Self {
        Self {
            task_id: dependency.task.to_string(),
            output: dependency.output,
            artifacts: dependency.artifacts,
        }
    }
}
