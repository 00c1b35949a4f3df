//! JO-17: joins whose parents end together.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use tidemill::{Handlers, Host, HostOptions, JobStatus, Json, task};

struct Directory(PathBuf);

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn jo_17_each_join_of_a_thousand_diamonds_runs_once() {
    const JOBS: u32 = 1_000;
    let directory = Directory(std::env::temp_dir().join(format!("tidemill-diamonds-{}", std::process::id())));
    let joined = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&joined);
    let handlers = Handlers::new()
        .on("work", |_| async { Ok(Json::empty_object()) })
        .unwrap()
        .on("join", move |task| {
            count.fetch_add(1, Ordering::Relaxed);
            async move { Ok(Json::of(&task.dependency_outputs.len())) }
        })
        .unwrap();
    let options = HostOptions { slots: 32, ..HostOptions::default() };
    let host = Host::open(&directory.0, handlers, options).await.unwrap();
    let mut jobs = Vec::new();
    for _ in 0..JOBS {
        let tasks = vec![
            task("top", "work", &[]).unwrap(),
            task("left", "work", &["top"]).unwrap(),
            task("right", "work", &["top"]).unwrap(),
            task("bottom", "join", &["left", "right"]).unwrap(),
        ];
        jobs.push(host.submit("diamond", tasks).await.unwrap());
    }
    for job in jobs {
        assert_eq!(host.wait(job).await.unwrap(), JobStatus::Completed);
    }
    assert_eq!(joined.load(Ordering::Relaxed), JOBS);
    host.shut_down().await;
}
