//! A job as lines: its head, its tasks as they were handed in, and where those stand that were dispatched.

use std::io::{self, Write};

use tidemill_model::Json;

use crate::export::{ExportTally, Lines, PART_BYTES, line};
use crate::kernel::state::row::{JobRows, StoredTask};

impl<W: Write> Lines<W> {
    pub fn put_job(&mut self, rows: JobRows, tally: &mut ExportTally) -> io::Result<()> {
        let job_id = rows.head.job;
        tally.jobs += 1;
        self.put(&line::JobLine::of(&rows.head))?;
        let (mut first, mut tasks, mut bytes) = (0, Vec::new(), 0);
        for spec in rows.task_list() {
            let json = Json::of(&*spec);
            bytes += json.len();
            tasks.push(json);
            if bytes >= PART_BYTES {
                let count = tasks.len();
                self.put(&line::JobTasksLine { kind: "jobTasks", job_id, first, tasks })?;
                (first, tasks, bytes) = (first + count, Vec::new(), 0);
            }
        }
        if !tasks.is_empty() {
            self.put(&line::JobTasksLine { kind: "jobTasks", job_id, first, tasks })?;
        }
        for (key, entry) in rows.entries {
            tally.tasks += 1;
            self.put(&line::TaskLine::of(&key, &StoredTask { alone: None, entry, index: None }))?;
        }
        Ok(())
    }
}
