//! Checkpoints while others write: rows and the place they reflect belong together.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tidemill_embedded::Embedded;
use tidemill_engine::clock::SystemClock;
use tidemill_engine::reply::Reply;
use tidemill_model::JobId;

use crate::lab::{Fresh, Lab, claim, complete, diamond, small, submit_job};

#[test]
fn a_checkpoint_reflects_all_that_lies_before_it_and_nothing_else() {
    for round in 0..4u128 {
        let fresh = Fresh::new();
        let backend = Embedded::open(&fresh, small(), Arc::new(SystemClock::start())).unwrap();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (backend, done) = (&backend, &done);
            let writers: Vec<_> = (0..3u128)
                .map(|writer| {
                    scope.spawn(move || {
                        for number in 0..25 {
                            let job = JobId::from_u128(round << 64 | writer << 32 | number);
                            backend.execute_blocking(&[submit_job(job, diamond(), None)]).unwrap();
                            let replies = backend.execute_blocking(&[claim(2, 1)]).unwrap();
                            let Ok(Reply::Claimed { tasks, .. }) = &replies[0] else { panic!("{replies:?}") };
                            let finish: Vec<_> = tasks.iter().map(|task| complete(task, "{}")).collect();
                            backend.execute_blocking(&finish).unwrap();
                        }
                    })
                })
                .collect();
            scope.spawn(move || {
                while !done.load(Ordering::Acquire) {
                    backend.checkpoint().unwrap();
                }
            });
            for writer in writers {
                writer.join().unwrap();
            }
            done.store(true, Ordering::Release);
        });
        // The process goes without a last checkpoint.
        backend.abandon();
        Lab::open(&fresh).assert_clean();
    }
}
