//! Job files that people type into the dashboard, read as the command line reads them.

use std::path::Path;

use tidemill_server::{TextPlace, TextProblem, WrittenJob};
use tidemill_source_file::job_file::read_job;
use tidemill_source_file::{Form, TextPosition};

/// What a text says, or all that is wrong with it. YAML or JSON, by how it begins.
pub(crate) fn read(text: &str) -> Result<WrittenJob, Vec<TextProblem>> {
    let form = Form::of(Path::new(""), text.as_bytes());
    let document = match read_job("job", form, text.as_bytes()) {
        Ok(read) => read.document,
        Err(problems) => {
            let told = problems.0.into_iter().map(|problem| TextProblem {
                place: text_place(problem.place),
                path: problem.path,
                message: problem.message,
            });
            return Err(told.collect());
        }
    };
    let value = document.to_value();
    Ok(WrittenJob { value, place_of: Box::new(move |path| text_place(document.root.place_of(path))) })
}

fn text_place(TextPosition { line, column }: TextPosition) -> TextPlace {
    TextPlace { line, column }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_read_with_the_places_of_its_fields() {
        let read =
            read("name: a\ntasks:\n- taskId: x\n  run: echo\n").unwrap_or_else(|told| panic!("{told:?}"));
        assert_eq!(read.value["tasks"][0]["run"], "echo");
        assert_eq!((read.place_of)("tasks[0].run"), TextPlace { line: 4, column: 8 });
        assert_eq!(
            super::read("{\"tasks\": [{\"taskId\": \"x\", \"run\": \"y\"}]}")
                .unwrap_or_else(|told| panic!("{told:?}"))
                .value["tasks"][0]["run"],
            "y"
        );
    }

    #[test]
    fn what_is_wrong_is_told_at_its_place() {
        let told = read("tasks:\n- taskId: x\n  run: echo\n  timeout: soon\n").err().unwrap();
        let [problem] = &told[..] else { panic!("{told:?}") };
        assert_eq!(
            (problem.place, problem.path.as_str()),
            (TextPlace { line: 4, column: 12 }, "tasks[0].timeout")
        );
        let told = read("tasks: [").err().unwrap();
        assert_eq!(told[0].path, "", "{told:?}");
    }
}
