//! What comes of an attempt whose processes ended: the report, and the files that are handed over.

use std::borrow::Cow;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tidemill_engine::engine::{Signal, WorkReport};
use tidemill_engine::warn_seldom;
use tidemill_model::{Backoff, ErrorCategory, Exit, Json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Attempt, Cause, End, Ended, Heart, lost, millis};
use crate::attempt_files::{HandedOver, Patience, hand_over, special_note};
use crate::child::error_record::ErrorRecord;
use crate::child::lines::LINE_BYTES_MAX;
use crate::child::result::{BadResult, output_of};
use crate::child::verdict::{Failed, no_agent_result};
use crate::command_worker::PERSISTENCE_AT_STOP;
use crate::log_sink::{LogLine, LogSource};
use crate::pace::Pace;
use crate::source::{AttemptEnd, TaskSource};
use crate::trouble::{Lack, Trouble};
use crate::vitals::Stop;

/// What programs say when a disk has no room.
const NO_ROOM: [&str; 4] = ["No space left on device", "ENOSPC", "Disk quota exceeded", "EDQUOT"];
/// Before a result that could not be read is read again, and the longest of ever longer pauses.
const PAUSES: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(5));

impl<S: TaskSource> Attempt<'_, S> {
    /// Whether the processes ended for something that is the worker's and not the task's: its spawner died, or its disk is
    /// full and the task says so.
    pub(super) fn own_trouble(&self, ended: &Ended) -> Option<Trouble> {
        if !matches!(ended.cause, None | Some(Cause::Lapsed)) {
            return None;
        }
        let Some(exit) = ended.exit else {
            return Some(Trouble::new(Lack::Spawner, "it was killed, and the processes of the task with it"));
        };
        let record = self.error.as_ref().and_then(ErrorRecord::text);
        let said = [record.unwrap_or_default(), self.stderr.text(), self.stdout.text()];
        let says_full = || said.iter().any(|text| NO_ROOM.iter().any(|words| text.contains(words)));
        if exit.end == Exit::Code(0) || !says_full() {
            return None;
        }
        match self.shared.tree.look() {
            Err(trouble) => Some(trouble),
            Ok(()) if self.shared.troubles.is_recent() => {
                Some(Trouble::new(Lack::OutputDirectory, "a task found no space left in it"))
            }
            Ok(()) => None,
        }
    }

    /// Whether such an end costs no attempt. It is counted.
    pub(super) fn may_give_back(&self, trouble: &Trouble) -> bool {
        if trouble.lack != Lack::Spawner {
            return self.shared.troubles.may_give_back(self.claim);
        }
        if !self.is_alone {
            self.shared.troubles.lost_spawner(self.claim);
        }
        !self.is_alone
    }

    /// What is to be recorded, if this machine can read it within a while; else how the attempt ends without it.
    pub(super) async fn report_patiently(
        &self,
        ended: &Ended,
        elapsed: Duration,
        memory_ran_out: bool,
        mut heart: Heart<'_>,
    ) -> Result<WorkReport, End> {
        let until = Instant::now() + self.shared.config.upload_patience;
        let mut pauses = PAUSES;
        loop {
            match self.report(ended, elapsed, memory_ran_out) {
                Ok(report) => return Ok(report),
                Err(trouble) if Instant::now() >= until => {
                    self.directory.discard().await;
                    return Err(End::Unable(trouble, self.spent.clone()));
                }
                Err(trouble) => {
                    warn_seldom!(trouble, request = %self.claim.task.request, "what a task left cannot be read now");
                }
            }
            tokio::select! {
                biased;
                stop = &mut heart => return Err(lost(&self.directory, stop).await),
                () = tokio::time::sleep(pauses.pause()) => {}
            }
        }
    }

    /// What is to be recorded of the end of the processes. An error: this machine cannot read it now.
    fn report(&self, ended: &Ended, elapsed: Duration, memory_ran_out: bool) -> Result<WorkReport, Trouble> {
        let elapsed_millis = millis(elapsed);
        let signal = if ended.forced { Signal::Kill } else { Signal::Term };
        match ended.cause {
            Some(Cause::Timeout) => {
                let timeout_millis = millis(self.timeout);
                return Ok(WorkReport::timed_out(timeout_millis, elapsed_millis, signal));
            }
            Some(Cause::Idle) => {
                let seconds = self.idle_timeout.unwrap_or_default().as_secs_f64();
                let message = format!("no output for {seconds} s; ended with {}", signal.as_str());
                return Ok(WorkReport::failed(message, ErrorCategory::Timeout));
            }
            Some(Cause::Stop(_) | Cause::Lapsed | Cause::Shutdown) | None => {}
        }
        let Some(exit) = ended.exit else {
            let message =
                "the process that starts tasks was killed while the task ran alone, and the task with it";
            return Ok(WorkReport::failed(message, ErrorCategory::ServerError));
        };
        if exit.end == Exit::Code(0) {
            if self.agent_home.is_some() && self.result.is_none() && !self.result_was_cut {
                return Ok(no_agent_result());
            }
            return match self.output() {
                Ok(output) => Ok(WorkReport::Completed {
                    output: Some(output),
                    duration_millis: elapsed_millis,
                    exit_code: 0,
                    artifacts: Vec::new(),
                    usage: None,
                    session_id: None,
                }),
                Err(BadResult { message, is_unread: true, .. }) => {
                    Err(Trouble::new(Lack::Descriptors, message))
                }
                Err(BadResult { message, category, code, .. }) => {
                    Ok(WorkReport::failed(message, category).with_code(code))
                }
            };
        }
        let (stderr, stdout) = (self.stderr.text(), self.stdout.text());
        let (record, stderr, stdout) = (self.error.as_ref(), stderr.as_str(), stdout.as_str());
        Ok(Failed { exit, record, stderr, stdout, memory_ran_out }.report())
    }

    fn output(&self) -> Result<Json, BadResult> {
        if self.result.is_none() && self.result_was_cut {
            let message = format!(
                "a line of the protocol is longer than {LINE_BYTES_MAX} bytes; give the result as outputFile"
            );
            return Err(BadResult::new(message, ErrorCategory::Validation));
        }
        let output =
            output_of(self.result.as_ref(), self.last_line.as_deref(), &self.directory, self.left_files);
        let output = output.map_err(|bad| BadResult {
            message: self.redaction.clean_text(&bad.message).into_owned(),
            ..bad
        })?;
        let clean = self.redaction.clean_json(output.clone());
        if clean != output
            && let Some(schema) = self.schema()
            && let Err(problems) = (self.shared.config.check_output)(schema, &clean)
        {
            // The agent's process has checked the other one.
            let message = format!(
                "a secret was cut out of the output, which does not satisfy its schema without it: {problems}"
            );
            return Err(BadResult::of_agent(&self.redaction.clean_text(&message)));
        }
        if matches!(self.redaction.clean_text(clean.as_str()), Cow::Owned(_)) {
            // Such as a secret that is JSON itself.
            let message = "the result holds a secret that cannot be cut out of it";
            return Err(BadResult::new(message.to_owned(), ErrorCategory::Validation));
        }
        Ok(clean)
    }

    /// The form that the output must have.
    fn schema(&self) -> Option<&Json> {
        let last = self.claim.execution.agent.as_ref().and_then(|agent| agent.steps.last());
        last.and_then(|step| step.output_schema.as_ref())
    }

    /// Hands over what the attempt left, puts its directory into place, and keeps the lease meanwhile.
    pub(super) async fn conclude(
        &mut self,
        report: WorkReport,
        mut pace: watch::Receiver<Pace>,
        mut heart: Heart<'_>,
    ) -> End {
        // In the log before that is kept: what is no file can never be, so it is no reason to leave the directory.
        if let Some(note) = self.left_files.then(|| special_note(&self.directory.inner)).flatten() {
            self.note(&note);
        }
        self.flush();
        if !self.log.finish(&self.directory.inner) {
            self.shared.config.sink.line(&LogLine {
                claim: self.claim,
                stream: LogSource::Worker,
                text: "[tidemill] lines are missing in the log: it could not be written",
            });
        }
        let unsaid = tokio::select! {
            biased;
            unsaid = self.vitals.unsaid() => unsaid,
            stop = &mut heart => return lost(&self.directory, stop).await,
        };
        let patience = self.patience(&report);
        let mut stopped = pin!(stopped_for(&mut pace, PERSISTENCE_AT_STOP.max(patience.others)));
        let handed = loop {
            tokio::select! {
                biased;
                stop = &mut heart => return lost(&self.directory, stop).await,
                // A worker that may have the task by now keeps files under the same names.
                () = self.vitals.regained() => {}
                () = tokio::time::sleep(self.shared.config.persistence) => {
                    return lost(&self.directory, Stop::Lost).await;
                }
            }
            if !self.left_files {
                break Ok(HandedOver::default());
            }
            let source = &self.shared.source;
            tokio::select! {
                biased;
                stop = &mut heart => return lost(&self.directory, stop).await,
                handed = hand_over(source, self.claim, &self.directory, &self.redaction, patience) => break handed,
                () = &mut stopped => {
                    let missing = "the worker stopped before all files were stored".to_owned();
                    // Noted, so that the directory of a failed task stays.
                    let notes = vec![missing.clone()];
                    break Ok(HandedOver { notes, missing: Some(missing), ..HandedOver::default() });
                }
                () = self.vitals.lapsed() => {}
            }
        };
        let mut is_stored = true;
        let report = match handed {
            Ok(HandedOver { missing: Some(missing), .. }) if report.is_completed() => {
                return self.without_files(missing).await;
            }
            Ok(HandedOver { artifacts, notes, .. }) => {
                is_stored &= notes.is_empty();
                for text in notes {
                    self.note(&text);
                }
                self.flush();
                report.with_artifacts(artifacts)
            }
            Err(error) => {
                warn_seldom!(error, request = %self.claim.task.request, "the files of a task could not be handed over");
                return lost(&self.directory, Stop::Lost).await;
            }
        };
        if let Err(error) = self.directory.settle().await {
            is_stored = false;
            self.note(&format!("the output directory could not be shown as the last one: {error}"));
        }
        let directory = is_stored.then(|| Arc::clone(&self.directory));
        End::Report(AttemptEnd { began: unsaid, report }, directory)
    }

    /// How long files are tried again: what dependents get for as long as the outcome is, all else for a while.
    fn patience(&self, report: &WorkReport) -> Patience {
        let others = self.shared.config.upload_patience;
        let artifacts = if report.is_completed() { self.shared.config.persistence } else { others };
        Patience { artifacts: artifacts.max(others), others }
    }

    /// The end of a completed attempt whose artifacts could not be stored: another attempt makes them again.
    async fn without_files(&self, missing: String) -> End {
        self.directory.discard().await;
        End::Unable(Trouble::new(Lack::Store, missing), self.spent.clone())
    }
}

/// Returns when the worker was told to stop this long ago.
async fn stopped_for(pace: &mut watch::Receiver<Pace>, patience: Duration) {
    // Without a handle nobody stops it any more.
    if pace.wait_for(|pace| *pace != Pace::Work).await.is_err() {
        std::future::pending::<()>().await;
    }
    tokio::time::sleep(patience).await;
}
