//! See README.md.

mod backend;
mod crash;
mod keys;
mod stores;

use keys::{mix, NEW_PER_BATCH};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader, Write as _};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stores::Store;

/// User and system CPU seconds of this process, all threads.
fn cpu() -> f64 {
    let mut u: libc::rusage = unsafe { std::mem::zeroed() };
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut u) };
    let s = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    s(u.ru_utime) + s(u.ru_stime)
}

fn thread_cpu() -> f64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
    t.tv_sec as f64 + t.tv_nsec as f64 / 1e9
}

/// A number from a `name: value kB` line.
fn proc_field(file: &str, name: &str) -> u64 {
    let text = fs::read_to_string(file).unwrap_or_default();
    let line = text.lines().find(|l| l.starts_with(name)).unwrap_or("x 0");
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn files(dir: &Path, out: &mut Vec<PathBuf>) {
    for e in fs::read_dir(dir).unwrap().flatten() {
        if e.path().is_dir() {
            files(&e.path(), out);
        } else {
            out.push(e.path());
        }
    }
}

fn disk_bytes(dir: &Path) -> u64 {
    let mut all = Vec::new();
    files(dir, &mut all);
    all.iter().filter_map(|p| fs::metadata(p).ok()).map(|m| m.blocks() * 512).sum()
}

fn drop_page_cache(dir: &Path) {
    let mut all = Vec::new();
    files(dir, &mut all);
    for p in all {
        let f = fs::File::open(p).unwrap();
        f.sync_all().unwrap();
        unsafe { libc::posix_fadvise(f.as_raw_fd(), 0, 0, libc::POSIX_FADV_DONTNEED) };
    }
}

fn fill_page_cache(dir: &Path) {
    let mut all = Vec::new();
    files(dir, &mut all);
    for p in all {
        std::io::copy(&mut fs::File::open(p).unwrap(), &mut std::io::sink()).unwrap();
    }
}

fn quantiles(mut ns: Vec<u64>, name: &str, out: &mut String) {
    ns.sort_unstable();
    let at = |q: f64| ns[((ns.len() - 1) as f64 * q) as usize] as f64 / 1e3;
    write!(out, " {name}_p50_us={:.2} {name}_p99_us={:.2}", at(0.5), at(0.99)).unwrap();
}

fn position(store: &mut dyn Store) -> u64 {
    store.get(keys::POSITION).map_or(0, |v| u64::from_le_bytes(v.try_into().unwrap()))
}

fn load(store: &mut dyn Store, rows: u64, dir: &Path, out: &mut String) -> u64 {
    let mut next = position(store);
    let first = next;
    let (mut batch, mut times) = (Vec::new(), Vec::new());
    let (cpu0, mut generating, mut puts) = (cpu(), 0.0, 0u64);
    let io0 = proc_field("/proc/self/io", "write_bytes");
    while next * NEW_PER_BATCH < rows {
        let g = thread_cpu();
        keys::batch(next, &mut batch);
        generating += thread_cpu() - g;
        let t = Instant::now();
        store.put(&batch);
        times.push(t.elapsed().as_nanos() as u64);
        puts += batch.len() as u64;
        next += 1;
    }
    if times.is_empty() {
        return next;
    }
    let t = Instant::now();
    store.settle();
    let settle = t.elapsed().as_secs_f64();
    let used = cpu() - cpu0 - generating;
    let wall: f64 = times.iter().sum::<u64>() as f64 / 1e9;
    let io = proc_field("/proc/self/io", "write_bytes") - io0;
    let worst = *times.iter().max().unwrap() as f64 / 1e6;
    write!(
        out,
        " from_rows={} puts={puts} rows_per_s={:.0} cpu_us_per_row={:.2} written_per_row={:.0} settle_s={settle:.1} worst_batch_ms={worst:.0}",
        first * NEW_PER_BATCH,
        puts as f64 / wall,
        used * 1e6 / puts as f64,
        io as f64 / puts as f64,
    )
    .unwrap();
    quantiles(times, "batch", out);
    let per_row = disk_bytes(dir) as f64 / (next * NEW_PER_BATCH) as f64;
    write!(out, " disk_per_row={per_row:.0}").unwrap();
    next
}

fn lookups(store: &mut dyn Store, rows: u64, count: u64, out: &mut String) {
    for (name, salt) in [("present", 0), ("absent", 1)] {
        let wanted: Vec<_> = (0..count).map(|i| keys::key(mix(i ^ 0xbeef) % rows, salt)).collect();
        let mut ns = Vec::with_capacity(wanted.len());
        let c = cpu();
        for k in &wanted {
            let t = Instant::now();
            let found = store.get(k).is_some();
            ns.push(t.elapsed().as_nanos() as u64);
            assert_eq!(found, salt == 0, "{}", String::from_utf8_lossy(k));
        }
        write!(out, " {name}_cpu_us={:.2}", (cpu() - c) * 1e6 / count as f64).unwrap();
        quantiles(ns, name, out);
        let mut ns = Vec::with_capacity(wanted.len());
        let mut t = Instant::now();
        store.get_held(&wanted, &mut |found| {
            ns.push(t.elapsed().as_nanos() as u64);
            assert_eq!(found, salt == 0);
            t = Instant::now();
        });
        quantiles(ns, &format!("{name}_held"), out);
    }
    let mut ns = Vec::new();
    for i in 0..count / 50 {
        let mut prefix = Vec::new();
        keys::job_prefix(&mut prefix, mix(i) % (rows / keys::TASKS_PER_JOB), 0);
        let t = Instant::now();
        let n = store.scan(&prefix);
        ns.push(t.elapsed().as_nanos() as u64);
        assert!(n > 10 && n <= 40, "{n}");
    }
    quantiles(ns, "scan_job", out);
    for (name, field) in [("anon", "RssAnon"), ("file", "RssFile"), ("hwm", "VmHWM")] {
        let kb = proc_field("/proc/self/status", field);
        write!(out, " rss_{name}_mib={:.0}", kb as f64 / 1024.0).unwrap();
    }
}

/// Lookups in one thread while another puts batches.
fn busy_lookups(store: &mut dyn Store, out: &mut String) {
    let mut next = position(store);
    let rows = next * NEW_PER_BATCH;
    let mut reader = store.reader();
    let stop = Arc::new(AtomicBool::new(false));
    let seen = stop.clone();
    let thread = std::thread::spawn(move || {
        let mut ns = Vec::new();
        for i in 0.. {
            if seen.load(Relaxed) {
                break;
            }
            let k = keys::key(mix(i ^ 0xb5) % rows, 0);
            let t = Instant::now();
            assert!(reader(&k).is_some());
            ns.push(t.elapsed().as_nanos() as u64);
        }
        ns
    });
    let mut batch = Vec::new();
    for _ in 0..20 {
        keys::batch(next, &mut batch);
        store.put(&batch);
        next += 1;
    }
    stop.store(true, Relaxed);
    let ns = thread.join().unwrap();
    let worst = *ns.iter().max().unwrap() as f64 / 1e6;
    quantiles(ns, "busy", out);
    write!(out, " busy_worst_ms={worst:.1}").unwrap();
}

fn say(line: &str) {
    println!("{line}");
    std::io::stdout().flush().unwrap();
}

/// Puts batches until killed.
fn spin(store: &mut dyn Store) {
    let mut next = position(store);
    let mut batch = Vec::new();
    loop {
        keys::batch(next, &mut batch);
        say(&format!("begin {next}"));
        let t = Instant::now();
        store.put(&batch);
        next += 1;
        say(&format!("acked {next} {}", t.elapsed().as_micros()));
    }
}

fn child(name: &str, dir: &Path, rows: u64) {
    let mut store = stores::open(name, dir);
    let mut out = String::from("result");
    let next = load(&mut *store, rows, dir, &mut out);
    fill_page_cache(dir);
    lookups(&mut *store, next * NEW_PER_BATCH, 200_000, &mut out);
    let note = store.note();
    busy_lookups(&mut *store, &mut out);
    say(&format!("{out} {note}"));
    spin(&mut *store);
}

fn reopen(name: &str, dir: &Path, acked: u64, cold: bool) {
    if cold {
        drop_page_cache(dir);
    }
    let (t, c) = (Instant::now(), cpu());
    let mut store = stores::open(name, dir);
    let opened = t.elapsed().as_secs_f64() * 1e3;
    let now = position(&mut *store);
    let read = t.elapsed().as_secs_f64() * 1e3;
    let used = (cpu() - c) * 1e3;
    assert!(now == acked || now == acked + 1, "position {now}, acknowledged {acked}");
    let mut ns = Vec::new();
    if cold {
        for i in 0..2000 {
            let k = keys::key(mix(i ^ 0xc01d) % (now * NEW_PER_BATCH), 0);
            let t = Instant::now();
            assert!(store.get(&k).is_some());
            ns.push(t.elapsed().as_nanos() as u64);
        }
    }
    for row in (now - 1) * NEW_PER_BATCH..(now + 1) * NEW_PER_BATCH {
        let there = store.get(&keys::key(row, 0));
        let want = (row < now * NEW_PER_BATCH).then(|| keys::value(row, now - 1));
        assert_eq!(there, want, "row {row} at position {now}");
    }
    let kind = if cold { "coldopen" } else { "open" };
    let mut out =
        format!("result {kind}_ms={opened:.1} {kind}_first_read_ms={read:.1} {kind}_cpu_ms={used:.1}");
    if cold {
        quantiles(ns, "coldget", &mut out);
    }
    let t = Instant::now();
    drop(store);
    say(&format!("{out} close_ms={:.1}", t.elapsed().as_secs_f64() * 1e3));
}

fn spawn(args: &[&str]) -> (Child, BufReader<std::process::ChildStdout>) {
    let me = std::env::current_exe().unwrap();
    let mut c = Command::new(me).args(args).stdout(Stdio::piped()).spawn().unwrap();
    let out = BufReader::new(c.stdout.take().unwrap());
    (c, out)
}

type Table = BTreeMap<(u64, String), BTreeMap<String, Vec<String>>>;

fn record(table: &mut Table, rows: u64, store: &str, line: &str) {
    say(&format!("{rows} {store} {line}"));
    let cell = table.entry((rows, store.to_string())).or_default();
    for (k, v) in line.split_whitespace().filter_map(|w| w.split_once('=')) {
        cell.entry(k.to_string()).or_default().push(v.to_string());
    }
}

/// Waits for some batches, then kills the child in the middle of one. Returns the last
/// acknowledged position.
fn kill_mid_batch(
    mut c: Child,
    out: BufReader<std::process::ChildStdout>,
    seed: u64,
    result: &mut dyn FnMut(&str),
) -> u64 {
    let (mut acked, mut acks, mut micros) = (None, 0, 0u64);
    for line in out.lines().map_while(|l| l.ok()) {
        let words: Vec<_> = line.split_whitespace().collect();
        match words[0] {
            "result" => result(&line),
            "acked" => {
                acks += 1;
                acked = Some(words[1].parse().unwrap());
                micros = words[2].parse().unwrap();
            }
            "begin" if acks >= 2 => {
                std::thread::sleep(Duration::from_micros(micros * (1 + mix(seed) % 8) / 10));
                c.kill().unwrap();
                acks = 0;
            }
            _ => {}
        }
    }
    c.wait().unwrap();
    acked.expect("child died early")
}

fn measure(name: &str, dir: &Path, rows: u64, kills: u64, table: &mut Table) {
    let d = dir.to_str().unwrap();
    for k in 0..kills {
        let count = rows.to_string();
        let (c, out) = if k == 0 { spawn(&["child", name, d, &count]) } else { spawn(&["spin", name, d]) };
        let acked = kill_mid_batch(c, out, mix(rows ^ k), &mut |l| record(table, rows, name, l));
        let cold = if k + 1 == kills { "cold" } else { "warm" };
        let (mut c, out) = spawn(&["reopen", name, d, &acked.to_string(), cold]);
        for line in out.lines().map_while(|l| l.ok()) {
            record(table, rows, name, &line);
        }
        assert!(c.wait().unwrap().success(), "{name} did not come back");
    }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let a: Vec<&str> = args.iter().map(String::as_str).collect();
    match a.as_slice() {
        ["child", name, dir, rows] => child(name, Path::new(dir), rows.parse().unwrap()),
        ["spin", name, dir] => spin(&mut *stores::open(name, Path::new(dir))),
        ["reopen", name, dir, acked, how] => {
            reopen(name, Path::new(dir), acked.parse().unwrap(), *how == "cold");
        }
        ["crash", chains] => crash::run(chains.parse().unwrap()),
        ["all", dir, rounds, sizes, rest @ ..] => {
            let names = if rest.is_empty() { stores::ALL.to_vec() } else { rest.to_vec() };
            let mut table = Table::new();
            for round in 0..rounds.parse::<u64>().unwrap() {
                for i in 0..names.len() {
                    let name = names[(i + round as usize * 3) % names.len()];
                    let dir = Path::new(dir).join(format!("{name}-{round}"));
                    let _ = fs::remove_dir_all(&dir);
                    for rows in sizes.split(',').map(|s| s.parse().unwrap()) {
                        measure(name, &dir, rows, 4, &mut table);
                    }
                    fs::remove_dir_all(&dir).unwrap();
                }
            }
            for ((rows, name), cells) in &table {
                println!("\n{rows} rows, {name}");
                for (k, v) in cells {
                    println!("  {k}: {}", v.join(" / "));
                }
            }
        }
        _ => eprintln!("usage: all DIR ROUNDS SIZE[,SIZE] [STORE...] | crash CHAINS"),
    }
}
