//! The candidates behind one small trait.

use crate::backend::CountingFile;
use crate::keys::Row;
use redb::ReadableDatabase;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// In bytes; 32 MiB unless CACHE_MIB says otherwise.
fn cache() -> usize {
    std::env::var("CACHE_MIB").map_or(32, |m| m.parse().expect("CACHE_MIB is a number")) << 20
}

pub const ALL: [&str; 7] =
    ["redb", "redb-qr", "redb-qr-backend", "sqlite-full", "sqlite-normal", "lmdb", "fjall"];

pub type Reader = Box<dyn FnMut(&[u8]) -> Option<Vec<u8>> + Send>;

pub trait Store {
    /// One durable transaction.
    fn put(&mut self, rows: &[Row]);
    /// One lookup with its own snapshot.
    fn get(&mut self, key: &[u8]) -> Option<Vec<u8>>;
    /// Lookups that share one snapshot. Calls `each` after every lookup.
    fn get_held(&mut self, keys: &[Vec<u8>], each: &mut dyn FnMut(bool));
    fn scan(&mut self, prefix: &[u8]) -> usize;
    /// Lookups for another thread, beside the writer.
    fn reader(&self) -> Reader;
    /// Waits for background work.
    fn settle(&mut self) {}
    fn note(&self) -> String {
        String::new()
    }
}

pub fn open(name: &str, dir: &Path) -> Box<dyn Store> {
    std::fs::create_dir_all(dir).unwrap();
    match name {
        "redb" => Box::new(Redb::new(dir, false, false)),
        "redb-qr" => Box::new(Redb::new(dir, true, false)),
        "redb-qr-backend" => Box::new(Redb::new(dir, true, true)),
        "sqlite-full" => Box::new(Sqlite::new(dir, "FULL")),
        "sqlite-normal" => Box::new(Sqlite::new(dir, "NORMAL")),
        "lmdb" => Box::new(Lmdb::new(dir)),
        "fjall" => Box::new(Fjall::new(dir)),
        _ => panic!("unknown store {name}"),
    }
}

fn successor(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    *end.last_mut().unwrap() += 1;
    end
}

const TABLE: redb::TableDefinition<&[u8], &[u8]> = redb::TableDefinition::new("rows");

struct Redb {
    db: Arc<redb::Database>,
    quick: bool,
    counts: Option<Arc<crate::backend::Counts>>,
}

impl Redb {
    fn new(dir: &Path, quick: bool, own_backend: bool) -> Self {
        let path = dir.join("rows.redb");
        let mut builder = redb::Builder::new();
        builder.set_cache_size(cache());
        let mut counts = None;
        let db = if own_backend {
            let backend = CountingFile::open(&path).unwrap();
            counts = Some(backend.counts.clone());
            builder.create_with_backend(backend).unwrap()
        } else {
            builder.create(&path).unwrap()
        };
        Redb { db: Arc::new(db), quick, counts }
    }
}

fn redb_get(db: &redb::Database, key: &[u8]) -> Option<Vec<u8>> {
    let tx = db.begin_read().unwrap();
    let table = match tx.open_table(TABLE) {
        Ok(t) => t,
        Err(redb::TableError::TableDoesNotExist(_)) => return None,
        Err(e) => panic!("{e}"),
    };
    let found = table.get(key).unwrap();
    found.map(|v| v.value().to_vec())
}

impl Store for Redb {
    fn put(&mut self, rows: &[Row]) {
        let mut tx = self.db.begin_write().unwrap();
        tx.set_durability(redb::Durability::Immediate).unwrap();
        tx.set_quick_repair(self.quick);
        {
            let mut table = tx.open_table(TABLE).unwrap();
            for (k, v) in rows {
                table.insert(k.as_slice(), v.as_slice()).unwrap();
            }
        }
        tx.commit().unwrap();
    }
    fn get(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        redb_get(&self.db, key)
    }
    fn reader(&self) -> Reader {
        let db = self.db.clone();
        Box::new(move |key| redb_get(&db, key))
    }
    fn get_held(&mut self, keys: &[Vec<u8>], each: &mut dyn FnMut(bool)) {
        let table = self.db.begin_read().unwrap().open_table(TABLE).unwrap();
        for k in keys {
            let v = table.get(k.as_slice()).unwrap().map(|v| v.value().to_vec());
            each(v.is_some());
        }
    }
    fn scan(&mut self, prefix: &[u8]) -> usize {
        let table = self.db.begin_read().unwrap().open_table(TABLE).unwrap();
        let end = successor(prefix);
        table
            .range(prefix..end.as_slice())
            .unwrap()
            .filter(|r| !r.as_ref().unwrap().1.value().is_empty())
            .count()
    }
    fn note(&self) -> String {
        self.counts.as_ref().map(|c| c.text()).unwrap_or_default()
    }
}

struct Sqlite {
    db: rusqlite::Connection,
    dir: PathBuf,
    sync: &'static str,
}

impl Sqlite {
    fn new(dir: &Path, sync: &'static str) -> Self {
        let db = rusqlite::Connection::open(dir.join("rows.sqlite")).unwrap();
        db.pragma_update(None, "journal_mode", "WAL").unwrap();
        db.pragma_update(None, "synchronous", sync).unwrap();
        db.pragma_update(None, "cache_size", -((cache() >> 10) as i64)).unwrap();
        db.execute_batch(
            "CREATE TABLE IF NOT EXISTS rows(k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID",
        )
        .unwrap();
        Sqlite { db, dir: dir.into(), sync }
    }
}

const SELECT: &str = "SELECT v FROM rows WHERE k=?1";

impl Store for Sqlite {
    fn put(&mut self, rows: &[Row]) {
        let tx = self.db.transaction().unwrap();
        {
            let mut put = tx.prepare_cached("INSERT OR REPLACE INTO rows VALUES(?1,?2)").unwrap();
            for (k, v) in rows {
                put.execute((k.as_slice(), v.as_slice())).unwrap();
            }
        }
        tx.commit().unwrap();
    }
    fn get(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let mut get = self.db.prepare_cached(SELECT).unwrap();
        let mut rows = get.query([key]).unwrap();
        rows.next().unwrap().map(|r| r.get_ref(0).unwrap().as_blob().unwrap().to_vec())
    }
    fn reader(&self) -> Reader {
        let mut other = Sqlite::new(&self.dir, self.sync);
        Box::new(move |key| other.get(key))
    }
    fn get_held(&mut self, keys: &[Vec<u8>], each: &mut dyn FnMut(bool)) {
        let tx = self.db.transaction().unwrap();
        let mut get = tx.prepare_cached(SELECT).unwrap();
        for k in keys {
            let mut rows = get.query([k.as_slice()]).unwrap();
            let v = rows.next().unwrap().map(|r| r.get_ref(0).unwrap().as_blob().unwrap().to_vec());
            each(v.is_some());
        }
    }
    fn scan(&mut self, prefix: &[u8]) -> usize {
        let mut scan =
            self.db.prepare_cached("SELECT k,v FROM rows WHERE k>=?1 AND k<?2 ORDER BY k").unwrap();
        let mut rows = scan.query((prefix, successor(prefix))).unwrap();
        let mut n = 0;
        while let Some(r) = rows.next().unwrap() {
            n += usize::from(!r.get_ref(1).unwrap().as_blob().unwrap().is_empty());
        }
        n
    }
}

type LmdbTable = heed::Database<'static, heed::types::Bytes, heed::types::Bytes>;

struct Lmdb {
    env: heed::Env<heed::WithoutTls>,
    db: LmdbTable,
}

impl Lmdb {
    fn new(dir: &Path) -> Self {
        // Safe here: one process opens the map and nothing truncates the file beneath it.
        let env = unsafe {
            heed::EnvOpenOptions::new().read_txn_without_tls().map_size(64 << 30).open(dir).unwrap()
        };
        let tx = env.write_txn().unwrap();
        let db = env
            .create_databases_and_commit(tx, |opener, tx| {
                let db = opener.create_database(tx, None)?;
                Ok::<_, heed::Error>(heed::CommitOrAbort::<_, ()>::Commit(db))
            })
            .unwrap()
            .unwrap_commit();
        Lmdb { env, db }
    }
}

impl Store for Lmdb {
    fn put(&mut self, rows: &[Row]) {
        let mut tx = self.env.write_txn().unwrap();
        for (k, v) in rows {
            self.db.put(&mut tx, k, v).unwrap();
        }
        tx.commit().unwrap();
    }
    fn get(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        let tx = self.env.read_txn().unwrap();
        self.db.get(&tx, key).unwrap().map(<[u8]>::to_vec)
    }
    fn reader(&self) -> Reader {
        let (env, db) = (self.env.clone(), self.db);
        Box::new(move |key| {
            let tx = env.read_txn().unwrap();
            db.get(&tx, key).unwrap().map(<[u8]>::to_vec)
        })
    }
    fn get_held(&mut self, keys: &[Vec<u8>], each: &mut dyn FnMut(bool)) {
        let tx = self.env.read_txn().unwrap();
        for k in keys {
            let v = self.db.get(&tx, k).unwrap().map(<[u8]>::to_vec);
            each(v.is_some());
        }
    }
    fn scan(&mut self, prefix: &[u8]) -> usize {
        let tx = self.env.read_txn().unwrap();
        self.db.prefix_iter(&tx, prefix).unwrap().filter(|r| !r.as_ref().unwrap().1.is_empty()).count()
    }
}

struct Fjall {
    db: fjall::Database,
    rows: fjall::Keyspace,
}

impl Fjall {
    fn new(dir: &Path) -> Self {
        let db = fjall::Database::builder(dir).cache_size(cache() as u64).open().unwrap();
        let rows = db.keyspace("rows", fjall::KeyspaceCreateOptions::default).unwrap();
        Fjall { db, rows }
    }
}

impl Store for Fjall {
    fn put(&mut self, rows: &[Row]) {
        let mut batch = self.db.batch().durability(Some(fjall::PersistMode::SyncData));
        for (k, v) in rows {
            batch.insert(&self.rows, k.as_slice(), v.as_slice());
        }
        batch.commit().unwrap();
    }
    fn get(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        self.rows.get(key).unwrap().map(|v| v.to_vec())
    }
    fn reader(&self) -> Reader {
        let rows = self.rows.clone();
        Box::new(move |key| rows.get(key).unwrap().map(|v| v.to_vec()))
    }
    fn get_held(&mut self, keys: &[Vec<u8>], each: &mut dyn FnMut(bool)) {
        use fjall::Readable;
        let snapshot = self.db.snapshot();
        for k in keys {
            let v = snapshot.get(&self.rows, k).unwrap().map(|v| v.to_vec());
            each(v.is_some());
        }
    }
    fn scan(&mut self, prefix: &[u8]) -> usize {
        self.rows.prefix(prefix).map(|g| g.value().unwrap()).filter(|v| !v.is_empty()).count()
    }
    fn settle(&mut self) {
        let (begin, mut quiet) = (Instant::now(), 0);
        while quiet < 5 && begin.elapsed() < Duration::from_secs(60) {
            std::thread::sleep(Duration::from_millis(50));
            let idle = self.db.active_compactions() == 0 && self.db.outstanding_flushes() == 0;
            quiet = if idle { quiet + 1 } else { 0 };
        }
    }
}
