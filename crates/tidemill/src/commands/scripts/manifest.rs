//! `scripts.yaml`: the scripts of a folder, and what they are subscribed to.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Map, Value, json};
use tidemill_matcher::SubscriptionDraft;
use tidemill_model::authored::field_problem::{FieldProblems, code};
use tidemill_model::authored::nearest::unknown_field;
use tidemill_model::{ScriptDraft, ScriptId, SubscriptionId};
use tidemill_source_file::SourceFile;

use super::source_of;
use crate::commands::CommandError;
use crate::commands::input_file::InputFile;

/// What the file is called.
pub(super) const MANIFEST: &str = "scripts.yaml";

/// What a folder wants to be there, by id.
#[derive(Debug, Default)]
pub(super) struct Manifest {
    pub(super) scripts: BTreeMap<ScriptId, Wanted>,
    pub(super) subscriptions: BTreeMap<SubscriptionId, SubscriptionDraft>,
}

/// A script that a folder wants.
#[derive(Debug)]
pub(super) struct Wanted {
    pub(super) draft: ScriptDraft,
    /// The file of its source, for errors.
    pub(super) file: String,
}

impl Manifest {
    pub(super) fn read(dir: &Path) -> Result<Self, CommandError> {
        let input = InputFile::read(&dir.join(MANIFEST))?;
        let document = input.document()?;
        let mut problems = FieldProblems::default();
        let mut manifest = Self::default();
        manifest.take(dir, document.to_value(), &mut problems)?;
        problems.or(manifest).map_err(|problems| at_places(&document, &problems))
    }

    fn take(&mut self, dir: &Path, value: Value, problems: &mut FieldProblems) -> Result<(), CommandError> {
        let Value::Object(mut fields) = value else {
            problems.add("", code::INVALID_TYPE, "must be an object with `scripts`");
            return Ok(());
        };
        let scripts = list(&mut fields, "", "scripts", problems);
        only(&fields, "", "scripts", problems);
        let mut ids = BTreeSet::new();
        for (at, script) in scripts.into_iter().enumerate() {
            let place = format!("scripts[{at}]");
            let Value::Object(fields) = script else {
                problems.add(place, code::INVALID_TYPE, "must be an object");
                continue;
            };
            self.take_script(dir, &place, fields, &mut ids, problems)?;
        }
        Ok(())
    }

    fn take_script(
        &mut self,
        dir: &Path,
        place: &str,
        mut fields: Map<String, Value>,
        ids: &mut BTreeSet<String>,
        problems: &mut FieldProblems,
    ) -> Result<(), CommandError> {
        let subscriptions = list(&mut fields, place, "subscriptions", problems);
        let Some(id) = fields.get("id").and_then(Value::as_str).map(str::to_owned) else {
            problems.add(format!("{place}.id"), code::MISSING_FIELD, "is missing, or is no text");
            return Ok(());
        };
        if !ids.insert(id.clone()) {
            problems.add(format!("{place}.id"), code::INVALID_VALUE, "is there twice");
        }
        let file = match fields.remove("file") {
            None | Some(Value::Null) => format!("{id}.js"),
            Some(Value::String(file)) if is_inside(&file) => file,
            Some(_) => {
                let message = "must be a path within the folder";
                problems.add(format!("{place}.file"), code::INVALID_VALUE, message);
                return Ok(());
            }
        };
        if fields.contains_key("source") {
            let message = "does not belong here: the source is in its file";
            problems.add(format!("{place}.source"), code::UNKNOWN_FIELD, message);
            return Ok(());
        }
        for (at, subscription) in subscriptions.into_iter().enumerate() {
            self.take_subscription(&format!("{place}.subscriptions[{at}]"), &id, subscription, problems);
        }
        let mut unknown = Map::new();
        for name in fields.keys().cloned().collect::<Vec<_>>() {
            // What an answer says besides is no harm.
            let known = ["id", "name", "grants", "version", "createdAt", "updatedAt"];
            if !known.contains(&name.as_str()) {
                unknown.extend(fields.remove_entry(&name));
            }
        }
        only(&unknown, place, "id, name, file, grants, subscriptions", problems);
        let input = InputFile::read(&dir.join(&file))?;
        fields.insert("source".to_owned(), source_of(&input)?.into());
        fields.entry("name").or_insert_with(|| id.into());
        match ScriptDraft::read(Value::Object(fields)) {
            Ok(draft) => {
                if let Some(id) = draft.id.clone() {
                    self.scripts.insert(id, Wanted { draft, file: input.name });
                }
            }
            Err(found) => below(place, found, problems),
        }
        Ok(())
    }

    fn take_subscription(&mut self, place: &str, script: &str, value: Value, problems: &mut FieldProblems) {
        let Value::Object(mut fields) = value else {
            problems.add(place, code::INVALID_TYPE, "must be an object");
            return;
        };
        if fields.contains_key("scriptId") {
            let message = "does not belong here: it is the script above";
            problems.add(format!("{place}.scriptId"), code::UNKNOWN_FIELD, message);
            return;
        }
        fields.insert("scriptId".to_owned(), script.into());
        let named = fields.get("id").is_some_and(|id| !id.is_null());
        if !named {
            let event_type = fields.get("eventType").and_then(Value::as_str).unwrap_or_default();
            fields.insert("id".to_owned(), json!(default_id(script, event_type)));
        }
        match SubscriptionDraft::read(Value::Object(fields)) {
            Ok(draft) => {
                let Some(id) = draft.id.clone() else { return };
                if self.subscriptions.insert(id.clone(), draft).is_some() {
                    let message = if named {
                        "is there twice".to_owned()
                    } else {
                        format!("is missing, and {id:?} is there already")
                    };
                    problems.add(format!("{place}.id"), code::INVALID_VALUE, message);
                }
            }
            Err(found) => below(place, found, problems),
        }
    }
}

/// The id of a subscription that has none: its script and its event type, with `-` for what an id cannot hold.
fn default_id(script: &str, event_type: &str) -> String {
    let word = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c.to_ascii_lowercase() } else { '-' };
    format!("{script}-{}", event_type.chars().map(word).collect::<String>())
}

fn is_inside(file: &str) -> bool {
    use std::path::Component;
    !file.is_empty() && Path::new(file).components().all(|part| matches!(part, Component::Normal(_)))
}

fn list(
    fields: &mut Map<String, Value>,
    place: &str,
    name: &str,
    problems: &mut FieldProblems,
) -> Vec<Value> {
    match fields.remove(name) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(items)) => items,
        Some(_) => {
            let path = if place.is_empty() { name.to_owned() } else { format!("{place}.{name}") };
            problems.add(path, code::INVALID_TYPE, "must be a list");
            Vec::new()
        }
    }
}

fn only(fields: &Map<String, Value>, place: &str, known: &str, problems: &mut FieldProblems) {
    for name in fields.keys() {
        let path = if place.is_empty() { name.clone() } else { format!("{place}.{name}") };
        problems.add(path, code::UNKNOWN_FIELD, unknown_field(name, known.split(", ")));
    }
}

/// Problems of a part, at their places in the whole.
fn below(place: &str, found: FieldProblems, problems: &mut FieldProblems) {
    for problem in found.listed {
        let path =
            if problem.path.is_empty() { place.to_owned() } else { format!("{place}.{}", problem.path) };
        problems.add(path, problem.code, problem.message);
    }
}

fn at_places(document: &SourceFile, problems: &FieldProblems) -> CommandError {
    tidemill_source_file::job_file::placed(document, problems).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_subscriptions_are_made_of_their_script_and_type() {
        assert_eq!(default_id("repair", "Task Failed"), "repair-task-failed");
        assert_eq!(default_id("greet", "user.created"), "greet-user-created");
    }

    #[test]
    fn a_field_that_is_unknown_is_told_what_is_known_here() {
        let mut problems = FieldProblems::default();
        let manifest = json!({ "scripts": [{ "id": "a", "language": "js" }] });
        // There is no file of its source either.
        assert!(Manifest::default().take(Path::new("nowhere"), manifest, &mut problems).is_err());
        let [problem] = &problems.listed[..] else { panic!("{problems:?}") };
        assert_eq!(problem.path, "scripts[0].language");
        assert_eq!(problem.message, "unknown field; known are id, name, file, grants, subscriptions");
    }

    #[test]
    fn files_stay_within_the_folder() {
        for (file, expected) in [
            ("a.js", true),
            ("lib/a.js", true),
            ("../a.js", false),
            ("/etc/passwd", false),
            ("", false),
            ("./a.js", false),
        ] {
            assert_eq!(is_inside(file), expected, "{file}");
        }
    }
}
