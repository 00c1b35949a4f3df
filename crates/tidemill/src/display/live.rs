//! A job on a terminal: one line per task, drawn again as things happen.

use std::fmt::Write as _;
use std::io::{self, Stderr};

use super::humanize::{grouped, span};
use super::job_state::{JobState, TaskLine, TaskPhase};
use super::line;
use super::terminal::{Block, Size, size_of};

const SPINNER: [&str; 10] = ["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];
/// Deeper tasks are not indented further.
const INDENT_MAX: usize = 8;
/// Beside the tasks: the heading, a line of what is left out, the footer, and the cursor's own.
const OTHER_ROWS: usize = 4;
/// The widest column of task ids.
const ID_COLUMNS_MAX: usize = 40;

/// The tree on standard error.
pub(crate) struct LiveTree {
    block: Block<Stderr>,
    colours: bool,
    frame: usize,
    /// What to say below the tasks.
    pub(crate) footer: Option<String>,
}

impl LiveTree {
    /// `None` when standard error is no terminal.
    pub(crate) fn new(colours: bool) -> Option<Self> {
        size_of(&io::stderr())?;
        Some(Self { block: Block::new(io::stderr()), colours, frame: 0, footer: None })
    }

    pub(crate) fn draw(&mut self, state: &JobState, now: u64) -> io::Result<()> {
        let Some(size) = size_of(&io::stderr()) else { return Ok(()) };
        self.frame = self.frame.wrapping_add(1);
        let lines = lines(state, now, self.footer.as_deref(), size, self.frame, self.colours);
        self.block.draw(&lines, size)
    }

    /// The last drawing, which stays.
    pub(crate) fn end(mut self, state: &JobState, now: u64) -> io::Result<()> {
        self.footer = None;
        self.draw(state, now)?;
        self.block.leave()
    }

    /// A line above the tree.
    pub(crate) fn note(&mut self, text: &str) -> io::Result<()> {
        let Some(size) = size_of(&io::stderr()) else { return Ok(()) };
        self.block.print(text, size)
    }
}

fn lines(
    state: &JobState,
    now: u64,
    footer: Option<&str>,
    size: Size,
    frame: usize,
    colours: bool,
) -> Vec<String> {
    // The last column stays free: some terminals wrap as soon as it is written.
    let columns = size.columns.saturating_sub(1);
    let room = size.rows.saturating_sub(OTHER_ROWS).max(1);
    let shown = chosen(&state.tasks, room);
    let indent = |task: &TaskLine| task.depth.min(INDENT_MAX) * 2;
    let id_columns = shown.iter().map(|task| indent(task) + line::columns(&task.task_id)).max().unwrap_or(0);
    let id_columns = id_columns.min(ID_COLUMNS_MAX);
    let paint = Paint { colours };
    let mut lines = vec![paint.bold(&line::cut(&heading(state, now), columns))];
    for task in &shown {
        let (mark, colour) = mark(task.phase, frame);
        let id = line::cut(&format!("{:width$}{}", "", task.task_id, width = indent(task)), id_columns);
        let rest = line::cut(
            &format!("{}{}", line::pad(&id, id_columns), details(task, now)),
            columns.saturating_sub(2),
        );
        lines.push(format!("{} {rest}", paint.colour(mark, colour)));
    }
    if shown.len() < state.tasks.len() {
        lines.push(paint.dim(&line::cut(&left_out(state, &shown), columns)));
    }
    if let Some(footer) = footer {
        lines.push(paint.colour(&line::cut(footer, columns), YELLOW));
    }
    lines
}

fn heading(state: &JobState, now: u64) -> String {
    let name = state.name.as_deref().map(line::clean).unwrap_or_default();
    let (done, total) = (state.counts.completed, state.tasks.len());
    let failed = match state.counts.failed {
        0 => String::new(),
        failed => format!(", {} failed", grouped(failed as u64)),
    };
    let parked = match state.counts.parked {
        0 => String::new(),
        parked => format!(", {} parked", grouped(parked as u64)),
    };
    let elapsed = span(now.saturating_sub(state.created_at));
    format!(
        "{name} · {} of {} done{failed}{parked} · {elapsed} · {}",
        grouped(done as u64),
        grouped(total as u64),
        state.job_id
    )
}

fn details(task: &TaskLine, now: u64) -> String {
    let mut text = format!("  {}", line::pad(task.phase.as_str(), 9));
    let elapsed = task.elapsed(now).map(span).unwrap_or_default();
    let _ = write!(text, " {}", line::pad(&elapsed, 7));
    if task.attempt > 1 {
        let _ = write!(text, " attempt {}", task.attempt);
    }
    let said = match task.phase {
        TaskPhase::Retrying | TaskPhase::Parked | TaskPhase::Failed | TaskPhase::TimedOut => {
            task.error.as_ref().or(task.said.as_ref())
        }
        _ => task.said.as_ref(),
    };
    if let Some(said) = said {
        let _ = write!(text, " {}", line::clean(said));
    }
    text.trim_end().to_owned()
}

/// The tasks that fit: those at work first, then those that failed, then those that come next, then the rest.
fn chosen(tasks: &[TaskLine], room: usize) -> Vec<&TaskLine> {
    if tasks.len() <= room {
        return tasks.iter().collect();
    }
    let rank = |task: &TaskLine| match task.phase {
        TaskPhase::Running => 0,
        TaskPhase::Retrying => 1,
        TaskPhase::Parked | TaskPhase::Failed | TaskPhase::TimedOut => 2,
        TaskPhase::Queued => 3,
        TaskPhase::Waiting => 4,
        TaskPhase::Cancelled => 5,
        TaskPhase::Completed => 6,
    };
    let mut indices = Vec::with_capacity(room);
    for wanted in 0..=6 {
        let fitting =
            tasks.iter().enumerate().filter(|(_, task)| rank(task) == wanted).map(|(index, _)| index);
        indices.extend(fitting.take(room - indices.len()));
        if indices.len() == room {
            break;
        }
    }
    indices.sort_unstable();
    indices.into_iter().map(|index| &tasks[index]).collect()
}

fn left_out(state: &JobState, shown: &[&TaskLine]) -> String {
    let count = |is: fn(TaskPhase) -> bool| {
        let of = |tasks: &mut dyn Iterator<Item = &TaskLine>| tasks.filter(|task| is(task.phase)).count();
        of(&mut state.tasks.iter()) - of(&mut shown.iter().copied())
    };
    let parts = [
        (count(|phase| phase == TaskPhase::Completed), "completed"),
        (
            count(|phase| matches!(phase, TaskPhase::Failed | TaskPhase::TimedOut | TaskPhase::Cancelled)),
            "failed",
        ),
        (count(|phase| phase == TaskPhase::Parked), "parked"),
        (count(TaskPhase::is_active), "active"),
        (count(|phase| phase == TaskPhase::Waiting), "waiting"),
    ];
    let parts: Vec<_> = parts
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{} {word}", grouped(count as u64)))
        .collect();
    format!("  … and {}", parts.join(", "))
}

const RED: &str = "31";
const GREEN: &str = "32";
const YELLOW: &str = "33";
const CYAN: &str = "36";
const DIM: &str = "2";

fn mark(phase: TaskPhase, frame: usize) -> (&'static str, &'static str) {
    match phase {
        TaskPhase::Waiting => ("·", DIM),
        TaskPhase::Queued => ("○", DIM),
        TaskPhase::Running => (SPINNER[frame % SPINNER.len()], CYAN),
        TaskPhase::Retrying => ("↻", YELLOW),
        TaskPhase::Parked => ("⏸", YELLOW),
        TaskPhase::Completed => ("✔", GREEN),
        TaskPhase::Failed | TaskPhase::TimedOut => ("✖", RED),
        TaskPhase::Cancelled => ("⊘", YELLOW),
    }
}

struct Paint {
    colours: bool,
}

impl Paint {
    fn colour(&self, text: &str, code: &str) -> String {
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn bold(&self, text: &str) -> String {
        self.colour(text, "1")
    }

    fn dim(&self, text: &str) -> String {
        self.colour(text, DIM)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidemill_api::{JobView, TaskRow};

    use super::*;

    fn state(rows: &serde_json::Value) -> JobState {
        let job: JobView = serde_json::from_value(json!({
            "jobId": "job-1", "requestId": "r", "name": "hello", "app": "a", "status": "running", "totalTasks": 5,
            "tasks": [], "counts": {"waiting": 5, "pending": 0, "processing": 0, "completed": 0, "failed": 0},
            "nextCursor": null, "createdAt": 1_000, "completedAt": null
        }))
        .unwrap();
        let rows: Vec<TaskRow> = serde_json::from_value(rows.clone()).unwrap();
        JobState::new(&job, &rows)
    }

    fn row(id: &str, parents: &[&str], status: Option<&str>, attempt: u32) -> serde_json::Value {
        json!({
            "taskId": id, "requestId": id, "name": id, "dependsOn": parents, "status": status, "run": 1,
            "attempt": attempt, "startedAt": status.map(|_| 1_000), "finishedAt": (status == Some("completed")).then_some(1_500),
            "blockedBy": []
        })
    }

    #[test]
    fn a_small_job_is_shown_whole() {
        let mut state = state(&json!([
            row("fetch", &[], Some("completed"), 2),
            row("parse", &["fetch"], Some("processing"), 1),
            row("load", &["parse"], None, 0),
        ]));
        state.task_mut("parse").unwrap().said = Some("line \x1b[31m7\x1b[0m of a log".to_owned());
        let lines = lines(&state, 3_500, Some("stopping"), Size { rows: 24, columns: 60 }, 1, false);
        let expected = [
            "hello · 1 of 3 done · 2.5s · job-1",
            "✔ fetch     completed 500ms   attempt 2",
            "⠙   parse   running   2.5s    line 7 of a log",
            "·     load  waiting",
            "stopping",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn a_large_job_fits_the_screen_and_shows_what_matters() {
        let rows: Vec<_> = (0..1_000)
            .map(|n| row(&format!("t{n}"), &[], Some(if n < 990 { "completed" } else { "processing" }), 1))
            .collect();
        let state = state(&json!(rows));
        for rows in [5, 10, 24] {
            let lines = lines(&state, 2_000, Some("footer"), Size { rows, columns: 30 }, 0, false);
            assert!(lines.len() < rows, "{lines:#?}");
            assert!(lines.iter().all(|text| line::columns(text) < 30), "{lines:#?}");
        }
        let lines = lines(&state, 2_000, None, Size { rows: 16, columns: 80 }, 0, false);
        assert_eq!(lines.iter().filter(|text| text.contains("running")).count(), 10);
        assert_eq!(lines.last().unwrap(), "  … and 988 completed");
    }
}
