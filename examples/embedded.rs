//! Tidemill inside a program: a small graph of async functions, run durably, shown as it happens.
//!
//! ```text
//! cargo run --release -p tidemill --example embedded
//! ```
//!
//! Kill it in the middle and start it again with the same directory: what was completed stays completed.

use std::error::Error;
use std::time::{Duration, Instant};

use tidemill::{
    Handlers, Host, HostOptions, JobStatus, Json, RetryPolicy, TaskContext, TaskError, TaskSpec, task,
};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args().nth(1).unwrap_or_else(|| "target/example-data".to_owned());
    let handlers = Handlers::new()
        .on("fetch", fetch)?
        .on("count", count)?
        .on("report", report)?
        .on("noop", |_| async { Ok(Json::empty_object()) })?;
    let options = HostOptions { slots: 64, ..HostOptions::default() };
    let host = Host::open(dir.as_ref(), handlers, options).await?;

    let job = host
        .submit(
            "three pages",
            vec![
                task("page-1", "fetch", &[])?,
                eager(task("page-2", "fetch", &[])?),
                task("page-3", "fetch", &[])?,
                task("words", "count", &["page-1", "page-2", "page-3"])?,
                task("summary", "report", &["words"])?,
            ],
        )
        .await?;
    eprintln!("{job} is {}", host.wait(job).await?.as_str());

    let wide = (0..10_000).map(|n| task(&format!("t{n}"), "noop", &[])).collect::<Result<Vec<_>, _>>()?;
    let started = Instant::now();
    let job = host.submit("ten thousand", wide).await?;
    let status = host.wait(job).await?;
    let seconds = started.elapsed().as_secs_f64();
    eprintln!(
        "{job} is {}: 10,000 tasks in {seconds:.2} s, {:.0} a second",
        status.as_str(),
        10_000.0 / seconds
    );

    host.shut_down().await;
    if status == JobStatus::Completed { Ok(()) } else { Err("the job did not complete".into()) }
}

/// Tries again after 100 ms instead of 5 s.
fn eager(mut task: TaskSpec) -> TaskSpec {
    task.options.retry = Some(RetryPolicy { first_delay: 100, ..RetryPolicy::default() });
    task
}

/// Stands for slow, flaky work: the first attempt of the second page fails and is tried again.
async fn fetch(task: TaskContext) -> Result<Json, TaskError> {
    tokio::time::sleep(Duration::from_millis(50)).await;
    if task.task.as_str() == "page-2" && task.attempt == 1 {
        return Err(TaskError::retryable("connection reset"));
    }
    eprintln!("{} fetched at attempt {}", task.task, task.attempt);
    Ok(Json::of(&format!("the words of {}", task.task)))
}

async fn count(task: TaskContext) -> Result<Json, TaskError> {
    let words =
        task.dependency_outputs.iter().map(|(_, output)| output.as_str().split(' ').count()).sum::<usize>();
    Ok(Json::of(&words))
}

async fn report(task: TaskContext) -> Result<Json, TaskError> {
    let words = task.output_of("words").cloned().unwrap_or_default();
    eprintln!("{} words in all", words.as_str());
    Ok(words)
}
