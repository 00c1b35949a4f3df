//! Job files: text to a checked job, with every problem at its place in the file.

use tidemill_model::work::dag::check_entries;
use tidemill_model::{AddTasksFile, FieldProblems, JobFile, TaskEntry};

use crate::{FileProblems, Form, SourceFile};

/// A job file that was read and found right, as far as the file alone can tell.
#[derive(Debug, Clone)]
pub struct ReadJob {
    pub document: SourceFile,
    pub file: JobFile,
}

/// Reads a job file. `name` is what errors call it.
///
/// It never panics, whatever the bytes are, and tells all problems at once.
pub fn read_job(name: &str, form: Form, bytes: &[u8]) -> Result<ReadJob, FileProblems> {
    let document = SourceFile::read(name, form, bytes)?;
    let file = JobFile::read(document.to_value()).map_err(|problems| placed(&document, &problems))?;
    check_graph(&document, &file.tasks)?;
    Ok(ReadJob { document, file })
}

/// Reads a file of further tasks. What they depend on may be in the job already, so the graph is not checked here.
pub fn read_added_tasks(name: &str, form: Form, bytes: &[u8]) -> Result<SourceFile, FileProblems> {
    let document = SourceFile::read(name, form, bytes)?;
    AddTasksFile::read(document.to_value()).map_err(|problems| placed(&document, &problems))?;
    Ok(document)
}

/// Problems of fields, at their places.
pub fn placed(document: &SourceFile, problems: &FieldProblems) -> FileProblems {
    document.problems(problems.listed.iter().map(|problem| (problem.path.clone(), problem.message.clone())))
}

fn check_graph(document: &SourceFile, tasks: &[TaskEntry]) -> Result<(), FileProblems> {
    check_entries(tasks).map_err(|violations| {
        document
            .problems(violations.listed.iter().map(|violation| (violation.field(), violation.to_string())))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn problems(text: &str) -> String {
        read_job("job.yaml", Form::Yaml, text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn every_problem_is_told_at_its_place() {
        let text = "\
name: nightly
tasks:
  - taskId: a
    run: [echo, hi]
    timeout: soon
  - taskId: b
    run: echo
    name: stored
    dependsOn: [a]
  - taskId: c
    run: echo
    retries: 3
  - taskId: d
    agent: {prompt: x, turns: 3}
callback: http://x
";
        let told = problems(text);
        let lines: Vec<_> = told.lines().collect();
        assert_eq!(lines.len(), 5, "{told}");
        for (line, begin) in lines.iter().zip([
            "job.yaml:5:14: tasks[0].timeout: ",
            "job.yaml:7:10: tasks[1].run: is one of name, run, agent and script",
            "job.yaml:12:14: tasks[2].retries: unknown field; did you mean retry?",
            "job.yaml:14:31: tasks[3].agent.turns: unknown field; did you mean maxTurns?",
            "job.yaml:15:11: callback: unknown field; did you mean callbackUrl?",
        ]) {
            assert!(line.starts_with(begin), "{line}\nshould begin with\n{begin}");
        }
    }

    #[test]
    fn the_graph_is_checked_too() {
        let text = "tasks:\n- {taskId: a, run: x, dependsOn: [b]}\n- {taskId: b, run: x, dependsOn: [a]}\n- {taskId: c, run: x, dependsOn: [d]}\n";
        let told = problems(text);
        assert!(
            told.contains("job.yaml:4:34: tasks[2].dependsOn: task c depends on d, which is not a task"),
            "{told}"
        );
        let text = "tasks:\n- {taskId: a, run: x, dependsOn: [b]}\n- {taskId: b, run: x, dependsOn: [a]}\n";
        let told = problems(text);
        assert!(told.contains("tasks depend on each other in a circle"), "{told}");
    }

    #[test]
    fn a_hundred_thousand_tasks_are_read() {
        let task = |number| format!("- taskId: t{number}\n  run: [\"true\"]\n");
        let text = format!("tasks:\n{}", (0..100_000).map(task).collect::<String>());
        let read = read_job("job.yaml", Form::Yaml, text.as_bytes()).unwrap();
        assert_eq!(read.file.tasks.len(), 100_000);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_are_a_job_or_problems(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read_job("f", Form::Yaml, &bytes);
            let _ = read_job("f", Form::Json, &bytes);
        }

        #[test]
        fn any_change_of_a_job_file_is_a_job_or_problems(at in 0usize..120, byte in any::<u8>()) {
            let mut bytes = b"name: a\ntasks:\n- taskId: x\n  run: [a, b]\n  timeout: 5s\n  env: {A: '1'}\n- {taskId: y, dependsOn: [x], run: c}\n".to_vec();
            let at = at % bytes.len();
            bytes[at] = byte;
            if let Err(problems) = read_job("f", Form::Yaml, &bytes) {
                prop_assert!(!problems.0.is_empty());
            }
        }
    }
}
