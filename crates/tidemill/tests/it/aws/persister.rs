//! Stores the events of a stage in tests, in place of the function that does: it does the same, and can be stopped.
//! It is late, and takes what came together in the wrong order, as functions do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use serde_json::json;
use tidemill_aws::Connection;
use tidemill_aws::handlers::{BusEvent, save_event};
use tidemill_engine::clock::{Clock as _, SystemClock};

use super::double::RUNTIME;
use super::home::call;

/// So often it looks at what came over the bus.
const LAG: Duration = Duration::from_millis(200);

pub(super) struct Persister {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    is_off: Mutex<bool>,
    changed: Condvar,
}

impl Persister {
    /// Stores what comes over the bus of a stage.
    pub(super) fn start(endpoint: &str, stage: &str, table: &str, bus: &str) -> Self {
        let sqs = |operation: &str, body| call(endpoint, &format!("AmazonSQS.{operation}"), &body);
        let queue = sqs("CreateQueue", json!({ "QueueName": format!("{stage}-saved") }))["QueueUrl"].clone();
        let asked = json!({ "QueueUrl": queue, "AttributeNames": ["QueueArn"] });
        let arn = sqs("GetQueueAttributes", asked)["Attributes"]["QueueArn"].clone();
        let pattern = json!({ "detail-type": ["log-event"] }).to_string();
        let rule = json!({ "Name": "saved", "EventBusName": bus, "EventPattern": pattern });
        call(endpoint, "AWSEvents.PutRule", &rule);
        let target =
            json!({ "Rule": "saved", "EventBusName": bus, "Targets": [{ "Id": "saved", "Arn": arn }] });
        call(endpoint, "AWSEvents.PutTargets", &target);
        let shared = Arc::new(Shared::default());
        let (own, endpoint, table) = (Arc::clone(&shared), endpoint.to_owned(), table.to_owned());
        let thread = std::thread::spawn(move || own.work(&endpoint, &table, &queue));
        Self { shared, thread: Some(thread) }
    }

    /// From now on nothing is stored. What is under way is stored first.
    pub(super) fn stop(&self) {
        *self.shared.is_off() = true;
    }

    /// Everything is stored again, what came meanwhile too.
    pub(super) fn go_on(&self) {
        *self.shared.is_off() = false;
        self.shared.changed.notify_all();
    }
}

impl Drop for Persister {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::SeqCst);
        self.go_on();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn is_off(&self) -> MutexGuard<'_, bool> {
        self.is_off.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn work(&self, endpoint: &str, table: &str, queue: &serde_json::Value) {
        let (connection, clock) = (RUNTIME.block_on(Connection::to_double(endpoint)), SystemClock::start());
        while !self.is_over.load(Ordering::SeqCst) {
            RUNTIME.block_on(async { tokio::time::sleep(LAG).await });
            // Held while a batch is stored, so that the test that stops this knows where it stands.
            let _off = self.changed.wait_while(self.is_off(), |is_off| *is_off);
            let asked = json!({ "QueueUrl": queue, "MaxNumberOfMessages": 10 });
            let taken = call(endpoint, "AmazonSQS.ReceiveMessage", &asked);
            for message in taken["Messages"].as_array().into_iter().flatten().rev() {
                let body = message["Body"].as_str().expect("it is text");
                let event = BusEvent::read(body).expect("the bus writes JSON");
                let saved = save_event(&connection, table, &event, clock.now());
                RUNTIME.block_on(saved).expect("the table takes it");
                let done = json!({ "QueueUrl": queue, "ReceiptHandle": message["ReceiptHandle"] });
                call(endpoint, "AmazonSQS.DeleteMessage", &done);
            }
        }
    }
}
