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
    /// What its value must look like, as a regular expression.
    pattern: Option<String>,
    /// All that its value may be; empty: anything.
    choices: Vec<String>,
    /// Whether its value is shown to nobody.
    pub(super) secret: bool,
}

impl Declared {
    /// Says what is wrong with a value, if something is.
    pub(super) fn problem(&self, value: &str) -> Option<String> {
        if !self.choices.is_empty() && !self.choices.iter().any(|choice| choice == value) {
            return Some(format!("{} must be one of {}", self.name, self.choices.join(", ")));
        }
        let pattern = self.pattern.as_ref()?;
        let fits = regex_lite::Regex::new(pattern).is_ok_and(|regex| regex.is_match(value));
        // What must not be shown is not shown in a refusal either.
        let shown = if self.secret { "what was given" } else { value };
        (!fits).then(|| format!("{} must match {pattern}, and {shown} does not", self.name))
    }
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
            pattern: fields.get("AllowedPattern").map(plain),
            choices: fields
                .get("AllowedValues")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .map(plain)
                .collect(),
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
    fn values_are_checked_as_the_templates_say() {
        let event = STACKS[1].parameters();
        for (name, value, problem) in [
            ("Stage", "dev", None),
            ("Stage", "Dev_X", Some("Stage must match ^[a-z][a-z0-9-]{0,20}$, and Dev_X does not")),
            (
                "Stage",
                "averyveryverylongstagename",
                Some("Stage must match ^[a-z][a-z0-9-]{0,20}$, and averyveryverylongstagename does not"),
            ),
            ("TenantId", "a b", Some("TenantId must match ^[A-Za-z0-9_-]{1,256}$, and a b does not")),
            ("Architecture", "arm", Some("Architecture must be one of x86_64, arm64")),
            ("LogRetentionDays", "30", None),
            (
                "LogRetentionDays",
                "2",
                Some("LogRetentionDays must be one of 1, 3, 5, 7, 14, 30, 60, 90, 180, 365"),
            ),
        ] {
            let declared = event.iter().find(|declared| declared.name == name).expect("it is declared");
            assert_eq!(declared.problem(value).as_deref(), problem, "{name} {value}");
        }
    }

    /// The longest name of a stage still makes a name that a bucket may have, in every region.
    #[test]
    fn every_stage_fits_a_bucket() {
        let stage = "s".repeat(21);
        let declared = STACKS[0].parameters().into_iter().find(|declared| declared.name == "Stage");
        let declared = declared.expect("it is declared");
        assert_eq!(
            (declared.problem(&stage), declared.problem(&format!("{stage}s")).is_some()),
            (None, true)
        );
        let bucket = STACKS[0].resources()["ArtifactsBucket"]["Properties"]["BucketName"]["Fn::Sub"].clone();
        let name = plain(&bucket)
            .replace("${Stage}", &stage)
            .replace("${AWS::AccountId}", "123456789012")
            .replace("${AWS::Region}", "ap-southeast-1");
        assert!(!name.contains('$') && name.len() <= 63, "{name}");
    }

    #[test]
    fn parameters_that_no_stack_has_are_found() {
        let given = [("TenantId", "a"), ("Tenant", "b")];
        let given = given.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(unknown_parameters(&BTreeMap::from(given)), ["Tenant"]);
    }
}
