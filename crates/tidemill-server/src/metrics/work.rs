//! Queue, commits, workers, attempts, deliveries, traces.

use tidemill_engine::metrics::{Metrics, SlotsMetrics, WORKER_SEEN};

use super::text::{Kind, Text, scaled};

pub(super) fn render(metrics: &Metrics, text: &mut Text) {
    queue(metrics, text);
    commits(metrics, text);
    attempts(metrics, text);
    deliveries(metrics, text);
}

fn queue(metrics: &Metrics, text: &mut Text) {
    let depth = metrics.queue;
    text.gauge(
        "tidemill_queue_messages",
        "Messages of tasks, those that are claimed or delayed included.",
        depth.messages,
    );
    text.gauge("tidemill_queue_ready", "Messages that a worker could take now.", depth.ready);
    text.gauge(
        "tidemill_queue_oldest_seconds",
        "How long the message that is next has waited for a worker; 0 when none waits.",
        scaled(metrics.queue_oldest_millis.unwrap_or(0), 3),
    );
}

fn commits(metrics: &Metrics, text: &mut Text) {
    let commits = &metrics.commits;
    text.counter("tidemill_commits_total", "Groups that were written and synced.", commits.seconds.count);
    text.counter("tidemill_commit_bytes_total", "Bytes of these groups.", commits.bytes);
    text.histogram(
        "tidemill_commit_seconds",
        "How long writing and syncing a group took, in seconds.",
        &commits.seconds,
    );
    text.histogram("tidemill_commit_events", "Events in a group.", &commits.events);
    let work = &metrics.work;
    text.histogram(
        "tidemill_command_seconds",
        "From commands to their durable answer, in seconds. Claims that found nothing are left out.",
        &work.commands,
    );
    text.counter(
        "tidemill_commands_refused_total",
        "Commands that the state did not allow.",
        work.commands_refused,
    );
    text.family(
        "tidemill_jobs_total",
        Kind::Counter,
        "What became of jobs; one failure for each failed task.",
    );
    let jobs = commits.jobs;
    for (event, count) in [
        ("created", jobs.created),
        ("completed", jobs.completed),
        ("failure", jobs.failures),
        ("cancelled", jobs.cancelled),
    ] {
        text.sample(&[("event", event)], count);
    }
    text.counter("tidemill_tasks_submitted_total", "Tasks without a job.", work.tasks_submitted);
    text.counter("tidemill_events_published_total", "Events that came from outside.", work.events_published);
}

fn attempts(metrics: &Metrics, text: &mut Text) {
    let work = &metrics.work;
    let about =
        format!("Workers, here and elsewhere, that were heard of in the last {} s.", WORKER_SEEN.as_secs());
    text.gauge("tidemill_workers", &about, work.workers);
    slots(metrics.slots, text);
    text.counter("tidemill_attempts_claimed_total", "Attempts that workers took.", work.attempts_claimed);
    text.counter(
        "tidemill_takeovers_total",
        "Attempts that were taken from a worker that fell silent.",
        work.takeovers,
    );
    text.counter(
        "tidemill_attempts_released_total",
        "Attempts that were given back without an outcome.",
        work.attempts_released,
    );
    text.family(
        "tidemill_attempts_ended_total",
        Kind::Counter,
        "Attempts whose end was reported, by what followed and the class of the error, which is empty for a success.",
    );
    for ((outcome, class), count) in &work.attempts_ended {
        text.sample(&[("outcome", outcome), ("class", class)], count);
    }
    text.histogram(
        "tidemill_submit_to_start_seconds",
        "From the submit of a task without parents to its first claim, in seconds.",
        &work.submit_to_start,
    );
    text.histogram(
        "tidemill_hop_seconds",
        "From the end of a task's last parent to its first claim, in seconds.",
        &work.hop,
    );
}

pub(super) fn slots(slots: SlotsMetrics, text: &mut Text) {
    text.gauge("tidemill_slots", "Tasks that may run in this process at a time.", slots.total);
    text.gauge("tidemill_slots_busy", "Tasks that run in this process.", slots.busy);
    text.gauge(
        "tidemill_workers_troubled",
        "Workers in this process that claim nothing, because this machine cannot run tasks.",
        slots.troubled,
    );
    text.counter(
        "tidemill_worker_troubles_total",
        "How often a worker in this process began to claim nothing.",
        slots.troubles,
    );
}

fn deliveries(metrics: &Metrics, text: &mut Text) {
    let work = &metrics.work;
    text.gauge(
        "tidemill_deliveries_waiting",
        "Webhooks, callbacks and alerts that have not arrived.",
        metrics.deliveries_waiting,
    );
    text.family("tidemill_delivery_tries_total", Kind::Counter, "Tries of deliveries, by how they ended.");
    text.sample(&[("result", "arrived")], work.deliveries_arrived);
    text.sample(&[("result", "failed")], work.deliveries_failed);
    text.counter("tidemill_deliveries_dead_total", "Deliveries that were given up.", work.deliveries_dead);
    text.family("tidemill_trace_spans_total", Kind::Counter, "Spans of traces, by what became of them.");
    text.sample(&[("result", "sent")], metrics.spans.sent);
    text.sample(&[("result", "dropped")], metrics.spans.dropped);
}
