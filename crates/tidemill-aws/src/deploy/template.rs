//! The templates, as they were when this program was built.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// A stack of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackTemplate {
    pub name: &'static str,
    pub text: &'static str,
}

macro_rules! stack {
    ($name:literal) => {
        StackTemplate { name: $name, text: include_str!(concat!("../../../../deploy/aws/", $name, ".json")) }
    };
}

/// In the order in which they are made: each uses what those before it export.
pub const STACKS: [StackTemplate; 6] = [
    stack!("infrastructure"),
    stack!("event"),
    stack!("dispatcher"),
    stack!("health-check"),
    stack!("producer-api"),
    stack!("consumer"),
];

/// A parameter of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Declared {
    pub(super) name: String,
    pub(super) default: Option<String>,
    /// Whether its value is shown to nobody.
    pub(super) secret: bool,
}

impl StackTemplate {
    /// What it is called in a stage.
    pub fn stack_name(&self, stage: &str) -> String {
        format!("task-workflow-{}-{stage}", self.name)
    }

    pub(super) fn parameters(&self) -> Vec<Declared> {
        let document = self.document();
        let declared = document.get("Parameters").and_then(Value::as_object).cloned().unwrap_or_default();
        let parameter = |(name, fields): (String, Value)| Declared {
            default: fields.get("Default").map(plain),
            secret: fields.get("NoEcho").is_some_and(|flag| plain(flag) == "true"),
            name,
        };
        declared.into_iter().map(parameter).collect()
    }

    pub(super) fn resources(&self) -> BTreeMap<String, Value> {
        resources_of(&self.document())
    }

    fn document(&self) -> Value {
        serde_json::from_str(self.text).expect("the templates of this program are JSON")
    }
}

pub(super) fn resources_of(document: &Value) -> BTreeMap<String, Value> {
    let resources: Option<&Map<_, _>> = document.get("Resources").and_then(Value::as_object);
    resources.into_iter().flatten().map(|(name, resource)| (name.clone(), resource.clone())).collect()
}

/// Parameters that no stack has.
pub fn unknown_parameters(given: &BTreeMap<String, String>) -> Vec<String> {
    let known: BTreeSet<String> =
        STACKS.iter().flat_map(StackTemplate::parameters).map(|declared| declared.name).collect();
    given.keys().filter(|name| !known.contains(*name)).cloned().collect()
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_template_is_read_and_names_its_stage() {
        for stack in STACKS {
            let names: Vec<_> = stack.parameters().into_iter().map(|declared| declared.name).collect();
            assert!(names.contains(&"Stage".to_owned()), "{}: {names:?}", stack.name);
            assert!(!stack.resources().is_empty(), "{}", stack.name);
        }
        assert_eq!(STACKS[0].stack_name("prod"), "task-workflow-infrastructure-prod");
    }

    #[test]
    fn parameters_that_no_stack_has_are_found() {
        let given = [("TenantId", "a"), ("Tenant", "b")];
        let given = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(unknown_parameters(&BTreeMap::from(given)), ["Tenant"]);
    }
}
