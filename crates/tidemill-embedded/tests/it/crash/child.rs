//! The child: works as hard as it can until it is killed.

use std::io::Write;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use tidemill_conformance::block_on;
use tidemill_embedded::Embedded;
use tidemill_engine::backend::Backend;
use tidemill_engine::clock::SystemClock;
use tidemill_engine::command::{Command, Recover};
use tidemill_engine::reply::{Assignment, Reply};
use tidemill_model::{EventId, JobId};

use super::ledger::PRODUCERS;
use crate::lab::{claim, complete, diamond, plain, publish, small, submit_job};

const WORKERS: u64 = 3;
/// Rows are written after this many acknowledgements.
const FLUSH_EVERY: u64 = 40;

/// Opens the store that the orders name and never returns.
pub(super) fn work(orders: &str) {
    let mut parts = orders.splitn(3, '\t');
    let life: u64 = parts.next().unwrap().parse().unwrap();
    let numbers: Vec<u64> = parts.next().unwrap().split(' ').map(|number| number.parse().unwrap()).collect();
    let dir = Path::new(parts.next().unwrap());
    let mut options = small();
    options.seed = life;
    let backend = Embedded::open(dir, options, Arc::new(SystemClock::start())).unwrap();
    backend.execute_blocking(&[Command::Recover(Recover { generation: life })]).unwrap();
    let child = Child { backend, life, acks: Mutex::new(0), said: Condvar::new() };
    child.ack("opened");
    std::thread::scope(|scope| {
        for (producer, number) in (0..PRODUCERS).zip(numbers) {
            let child = &child;
            scope.spawn(move || child.produce(producer, number));
        }
        for _ in 0..WORKERS {
            scope.spawn(|| child.run_tasks());
        }
        scope.spawn(|| child.keep());
    });
}

struct Child {
    backend: Embedded,
    life: u64,
    /// Acknowledgements since rows were written down.
    acks: Mutex<u64>,
    said: Condvar,
}

impl Child {
    /// Tells the parent, in one write, which the pipe takes whole or not at all.
    fn ack(&self, what: &str) {
        *self.acks.lock().unwrap() += 1;
        self.said.notify_all();
        std::io::stdout().lock().write_all(format!("ack {what}\n").as_bytes()).unwrap();
    }

    fn execute(&self, commands: &[Command]) -> Vec<Reply> {
        let answers = self.backend.execute_blocking(commands).unwrap();
        answers.into_iter().map(|answer| answer.unwrap()).collect()
    }

    /// Submits jobs and publishes events. The job that was under way when the last life ended is submitted again.
    fn produce(&self, producer: u64, first: u64) {
        for number in first.. {
            let key = format!("{producer}-{number}");
            let job = JobId::mint(EventId::from_u128(
                u128::from(self.life) << 64 | u128::from(producer) << 32 | u128::from(number),
            ));
            let replies = self.execute(&[submit_job(job, diamond(), Some(&key))]);
            let [Reply::JobSubmitted { job, .. }] = &replies[..] else { panic!("{replies:?}") };
            self.ack(&format!("job {producer} {number} {job}"));
            let name = format!("{}-{producer}-{number}", self.life);
            let properties = plain(&format!(r#"{{"name":"{name}"}}"#));
            let replies = self.execute(&[publish(&format!("p{producer}"), properties, None, None)]);
            let [Reply::Published { events }] = &replies[..] else { panic!("{replies:?}") };
            self.ack(&format!("event {name} {}", events[0].0));
        }
    }

    /// Claims tasks and completes them, each completion together with the next claim.
    fn run_tasks(&self) {
        let mut done: Option<Assignment> = None;
        loop {
            let mut commands: Vec<Command> =
                done.iter().map(|task| complete(task, r#"{"ok":true}"#)).collect();
            commands.push(claim(1, self.life));
            let mut replies = self.execute(&commands);
            let Some(Reply::Claimed { tasks, .. }) = replies.pop() else { panic!("{replies:?}") };
            if let Some(task) = &done {
                self.ack(&format!("finished {} {}", task.task.request, task.fence.0));
            }
            done = tasks.into_iter().next();
            match &done {
                Some(task) => self.ack(&format!("claimed {} {}", task.task.request, task.fence.0)),
                None => block_on(self.backend.work(None)),
            }
        }
    }

    /// Writes rows down and seals segments, over and over.
    fn keep(&self) {
        loop {
            let acks = self.acks.lock().unwrap();
            *self.said.wait_while(acks, |acks| *acks < FLUSH_EVERY).unwrap() = 0;
            self.backend.checkpoint().unwrap();
            self.backend.seal_all().unwrap();
        }
    }
}
