//! Files about workflows: families of events and catalogues of codes.

use std::path::Path;

use serde::Deserialize;
use tidemill_model::authored::field_problem::FieldProblems;
use tidemill_model::workflow::{Catalogue, Families, Family};
use tidemill_source_file::{FileProblem, Form, SourceFile};

use super::values::Values;

/// What workflow events are accepted, and what their codes mean.
#[derive(Debug, Clone, Default)]
pub(crate) struct Workflows {
    pub(crate) families: Families,
    pub(crate) catalogue: Catalogue,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FamiliesFile {
    families: Vec<Family>,
}

impl Workflows {
    /// Reads the files that were set. What is wrong is added to `problems`, one line each.
    pub(super) fn read(values: &Values, problems: &mut Vec<String>) -> Self {
        let families = families(values, problems).unwrap_or_default();
        let catalogue = catalogue(values, problems).unwrap_or_default();
        Self { families, catalogue }
    }
}

fn document(name: &str, path: &Path, problems: &mut Vec<String>) -> Option<SourceFile> {
    let shown = path.display().to_string();
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            problems.push(format!("{name}: cannot read {shown}: {error}"));
            return None;
        }
    };
    match SourceFile::read(&shown, Form::of(path, &bytes), &bytes) {
        Ok(document) => Some(document),
        Err(found) => {
            problems.extend(found.0.iter().map(FileProblem::to_string));
            None
        }
    }
}

fn tell(document: &SourceFile, found: FieldProblems, problems: &mut Vec<String>) {
    let found = found.listed.into_iter().map(|problem| (problem.path, problem.message));
    problems.extend(document.problems(found).0.iter().map(FileProblem::to_string));
}

/// Those of the sources with the usual names, then those of the file. A source that the file describes has its names.
fn families(values: &Values, problems: &mut Vec<String>) -> Option<Families> {
    let usual = values.workflow_sources.iter().map(|source| Family::of(source.as_str()));
    let Some(path) = &values.workflow_families else {
        return match Families::new(usual.collect()) {
            Ok(families) => Some(families),
            Err(found) => {
                let listed = found.listed.iter();
                problems.extend(listed.map(|problem| format!("WORKFLOW_SOURCES: {}", problem.message)));
                None
            }
        };
    };
    let document = document("WORKFLOW_FAMILIES", path, problems)?;
    let file: FamiliesFile = match serde_json::from_value(document.to_value()) {
        Ok(file) => file,
        Err(error) => {
            problems.push(document.problem("families", error.to_string()).to_string());
            return None;
        }
    };
    if let Err(found) = Families::new(file.families.clone()) {
        tell(&document, found, problems);
        return None;
    }
    let own = |source: &str| file.families.iter().any(|family| family.source == source);
    let all = usual.filter(|family| !own(&family.source)).chain(file.families.iter().cloned());
    match Families::new(all.collect()) {
        Ok(families) => Some(families),
        Err(found) => {
            tell(&document, found, problems);
            None
        }
    }
}

fn catalogue(values: &Values, problems: &mut Vec<String>) -> Option<Catalogue> {
    let Some(path) = &values.workflow_catalogue else { return Some(Catalogue::built_in()) };
    let document = document("WORKFLOW_CATALOGUE", path, problems)?;
    match Catalogue::built_in().with(document.to_value()) {
        Ok(catalogue) => Some(catalogue),
        Err(found) => {
            tell(&document, found, problems);
            None
        }
    }
}
