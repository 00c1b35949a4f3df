//! Runs redb on the simulated disk, cuts the power at every kind of moment, and compares what
//! comes back with a model.

use crate::backend::{Disk, SimDisk};
use crate::keys::mix;
use redb::{ReadableDatabase, ReadableTable, TableDefinition};
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Arc, Mutex};

const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("rows");
const POSITION: u64 = u64::MAX;
type Model = BTreeMap<u64, u64>;

fn open(disk: &Arc<Mutex<Disk>>) -> Result<redb::Database, redb::Error> {
    Ok(redb::Builder::new().set_cache_size(256 << 10).create_with_backend(SimDisk(disk.clone()))?)
}

fn changes(seed: u64, batch: u64) -> impl Iterator<Item = (u64, Option<u64>)> {
    let count = 1 + mix(seed ^ batch) % 120;
    (0..count).map(move |i| {
        let r = mix(seed ^ (batch << 16) ^ i);
        (r % 20_000, (r >> 32).is_multiple_of(4).then_some(()).map_or(Some(r), |()| None))
    })
}

fn apply(model: &mut Model, seed: u64, batch: u64) {
    for (k, v) in changes(seed, batch) {
        match v {
            Some(v) => model.insert(k, v),
            None => model.remove(&k),
        };
    }
}

fn write(db: &redb::Database, quick: bool, seed: u64, batch: u64) -> Result<(), redb::Error> {
    let mut tx = db.begin_write()?;
    tx.set_quick_repair(quick);
    {
        let mut t = tx.open_table(TABLE)?;
        for (k, v) in changes(seed, batch) {
            match v {
                Some(v) => drop(t.insert(k, v.to_le_bytes().repeat(1 + (v % 60) as usize).as_slice())?),
                None => drop(t.remove(k)?),
            }
        }
        t.insert(POSITION, (batch + 1).to_le_bytes().as_slice())?;
    }
    tx.commit()?;
    Ok(())
}

fn read(db: &redb::Database) -> Result<(u64, Model), redb::Error> {
    let tx = db.begin_read()?;
    let (mut position, mut model) = (0, Model::new());
    let table = match tx.open_table(TABLE) {
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok((0, model)),
        t => t?,
    };
    for row in table.iter()? {
        let (k, v) = row?;
        let word = u64::from_le_bytes(v.value()[..8].try_into().unwrap());
        match k.value() {
            POSITION => position = word,
            k => drop(model.insert(k, word)),
        }
    }
    Ok((position, model))
}

#[derive(Clone, Copy, PartialEq)]
enum Fault {
    PowerLoss,
    /// Like `PowerLoss`, on a disk whose sync does nothing. The check must notice.
    PowerLossSyncLies,
    /// One call fails, later ones work; then the database is closed and opened again.
    OneError,
}

#[derive(Default)]
struct Tally {
    faults: u64,
    /// The power went while the file was being made, and the remains do not open. They hold
    /// nothing, so they are removed.
    unborn: u64,
    wrong: BTreeMap<String, (u64, u64)>,
}

struct Chain {
    seed: u64,
    quick: bool,
    fault: Fault,
    born: bool,
    acked: u64,
    model: Model,
}

impl Chain {
    /// One life of the database, until the fault or for 40 batches.
    fn live(&mut self, db: &redb::Database, failed: &dyn Fn() -> bool) -> Result<(), String> {
        match read(db) {
            Ok((position, rows)) => {
                if position < self.acked {
                    return Err("lost batches".into());
                }
                if position > self.acked + 1 {
                    return Err("position from the future".into());
                }
                if position == self.acked + 1 {
                    apply(&mut self.model, self.seed, self.acked);
                    self.acked += 1;
                }
                if rows != self.model {
                    return Err("rows differ".into());
                }
            }
            Err(_) if failed() => return Ok(()),
            Err(e) => return Err(format!("does not read: {e}")),
        }
        for _ in 0..40 {
            match write(db, self.quick, self.seed, self.acked) {
                Ok(()) => {
                    apply(&mut self.model, self.seed, self.acked);
                    self.acked += 1;
                }
                Err(_) if failed() => {
                    let again =
                        self.fault == Fault::OneError && write(db, self.quick, self.seed, self.acked).is_ok();
                    return if again { Err("takes a write after an error".into()) } else { Ok(()) };
                }
                Err(e) => return Err(format!("does not write: {e}")),
            }
        }
        Ok(())
    }

    fn run(mut self, tally: &mut Tally) -> Result<(), String> {
        let mut image = Vec::new();
        for life in 0..8u64 {
            let life_seed = mix(self.seed ^ (life << 50));
            // Every other life is short, so that the power also goes during a repair.
            let longest = if life % 2 == 0 { 700 } else { 30 };
            let budget = if life == 7 { u64::MAX } else { mix(life_seed) % longest };
            let disk = Disk::new(std::mem::take(&mut image), budget);
            disk.lock().unwrap().sync_lies = self.fault == Fault::PowerLossSyncLies;
            disk.lock().unwrap().one_error = self.fault == Fault::OneError;
            let failed = || disk.lock().unwrap().calls > budget;
            match catch_unwind(|| open(&disk)).map_err(|_| "panics when opened")? {
                Ok(db) => {
                    self.born = true;
                    let db = ManuallyDrop::new(db);
                    // After a panic the database is leaked: dropping it may panic again.
                    catch_unwind(AssertUnwindSafe(|| self.live(&db, &failed))).map_err(|_| "panics")??;
                    catch_unwind(AssertUnwindSafe(|| drop(ManuallyDrop::into_inner(db))))
                        .map_err(|_| "panics when closed")?;
                }
                Err(_) if failed() => {}
                Err(_) if !self.born => {
                    tally.unborn += 1;
                    continue;
                }
                Err(e) => return Err(format!("does not open: {e}")),
            }
            tally.faults += u64::from(failed());
            let d = disk.lock().unwrap();
            image = if self.fault == Fault::OneError && life_seed & 1 == 0 {
                d.current.clone()
            } else {
                d.after_crash(life_seed ^ 0xc4a5)
            };
        }
        Ok(())
    }
}

fn trace(seed: u64) -> (u64, u64, u64) {
    let disk = Disk::new(Vec::new(), u64::MAX);
    let db = open(&disk).unwrap();
    for b in 0..200 {
        write(&db, true, seed, b).unwrap();
    }
    drop(db);
    let d = disk.lock().unwrap();
    (d.calls, d.lengths, d.trace)
}

pub fn run(chains: u64) {
    std::panic::set_hook(Box::new(|_| {}));
    for (name, quick, fault) in [
        ("redb, power loss", false, Fault::PowerLoss),
        ("redb-qr, power loss", true, Fault::PowerLoss),
        ("redb, one I/O error", false, Fault::OneError),
        ("redb-qr, one I/O error", true, Fault::OneError),
        ("redb-qr, power loss, sync does nothing", true, Fault::PowerLossSyncLies),
    ] {
        let mut tally = Tally::default();
        for n in 0..chains {
            let seed = mix(n);
            let chain = Chain { seed, quick, fault, born: false, acked: 0, model: Model::new() };
            if let Err(text) = chain.run(&mut tally) {
                tally.wrong.entry(text).or_insert((0, n)).0 += 1;
            }
        }
        let bad: u64 = tally.wrong.values().map(|w| w.0).sum();
        println!("{name}: chains={chains} faults={} unborn={} bad={bad}", tally.faults, tally.unborn);
        for (text, (count, first)) in &tally.wrong {
            println!("  {count} × {text} (first: chain {first})");
        }
    }
    let (a, b) = (trace(7), trace(7));
    println!("the same run twice: calls={} length changes={} identical={}", a.0, a.1, a == b);
}
