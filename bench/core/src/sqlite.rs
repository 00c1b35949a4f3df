//! The same events in SQLite: one writer, group commit, a primary key and the seven secondary keys as indexes.
//!
//! Names are numbers already, which is more than a plain table of events would do.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{JoinHandle, Thread};

use rusqlite::{Connection, params};

const SCHEMA: &str = "
CREATE TABLE events (
  tenant INTEGER NOT NULL, entity BLOB NOT NULL, at INTEGER NOT NULL, id BLOB NOT NULL,
  app INTEGER NOT NULL, type INTEGER NOT NULL, body TEXT NOT NULL);
CREATE UNIQUE INDEX pk ON events (tenant, entity, at, id);
CREATE INDEX gsi1 ON events (tenant, at, id);
CREATE INDEX gsi2 ON events (tenant, app, at, id);
CREATE INDEX gsi3 ON events (tenant, app, entity, at, id);
CREATE INDEX gsi4 ON events (tenant, type, at, id);
CREATE INDEX gsi5 ON events (tenant, type, entity, at, id);
CREATE INDEX gsi6 ON events (tenant, type, app, at, id);
CREATE INDEX gsi7 ON events (tenant, type, app, entity, at, id);";

pub struct SqlEvent {
    pub tenant: i64,
    pub app: i64,
    pub kind: i64,
    pub entity: String,
    pub at: i64,
    pub id: [u8; 16],
    pub body: Arc<str>,
}

pub struct Sqlite {
    shared: Arc<Shared>,
    writer: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    open: Mutex<(Vec<SqlEvent>, Vec<Thread>)>,
    bell: Condvar,
    synced: AtomicU64,
    handed: AtomicU64,
    closed: AtomicBool,
    groups: AtomicU64,
}

impl Sqlite {
    pub fn start(path: &Path) -> Self {
        let database = Connection::open(path).unwrap();
        database.pragma_update(None, "journal_mode", "WAL").unwrap();
        database.pragma_update(None, "synchronous", "FULL").unwrap();
        database.pragma_update(None, "cache_size", -65_536).unwrap();
        database.execute_batch(SCHEMA).unwrap();
        let shared = Arc::new(Shared::default());
        let writer = Some(std::thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.write(&database)
        }));
        Self { shared, writer }
    }

    /// Inserts an event and returns when it is on disk.
    pub fn append(&self, event: SqlEvent) {
        let number = {
            let mut open = self.shared.open.lock().unwrap();
            open.0.push(event);
            open.1.push(std::thread::current());
            let number = self.shared.handed.fetch_add(1, Ordering::Relaxed) + 1;
            self.shared.bell.notify_one();
            number
        };
        while self.shared.synced.load(Ordering::Acquire) < number {
            std::thread::park();
        }
    }

    pub fn groups(&self) -> u64 {
        self.shared.groups.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn write(&self, database: &Connection) {
        let mut insert = database.prepare("INSERT INTO events VALUES (?1,?2,?3,?4,?5,?6,?7)").unwrap();
        let mut done = 0;
        loop {
            let (events, waiting) = {
                let mut open = self.open.lock().unwrap();
                while open.0.is_empty() {
                    if self.closed.load(Ordering::Acquire) {
                        return;
                    }
                    open = self.bell.wait(open).unwrap();
                }
                (std::mem::take(&mut open.0), std::mem::take(&mut open.1))
            };
            database.execute_batch("BEGIN IMMEDIATE").unwrap();
            for event in &events {
                let SqlEvent { tenant, app, kind, entity, at, id, body } = event;
                insert
                    .execute(params![tenant, entity.as_bytes(), at, id.as_slice(), app, kind, &**body])
                    .unwrap();
            }
            database.execute_batch("COMMIT").unwrap();
            done += events.len() as u64;
            self.synced.store(done, Ordering::Release);
            self.groups.fetch_add(1, Ordering::Relaxed);
            waiting.into_iter().for_each(|thread| thread.unpark());
        }
    }
}

impl Drop for Sqlite {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::Release);
        self.shared.bell.notify_all();
        if let Some(writer) = self.writer.take() {
            let _ = writer.join();
        }
    }
}
