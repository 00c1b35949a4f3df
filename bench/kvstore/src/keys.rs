//! The rows. Every key is a function of its row number, so no key list is held in memory.

pub const BATCH: u64 = 16_384;
pub const NEW_PER_BATCH: u64 = BATCH * 9 / 10;
pub const TASKS_PER_JOB: u64 = 40;
pub const POSITION: &[u8] = b"p/position";
const RECENT: u64 = 200_000;

pub type Row = (Vec<u8>, Vec<u8>);

pub fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn hex(out: &mut Vec<u8>, word: u64) {
    for shift in (0..16).rev() {
        out.push(b"0123456789abcdef"[(word >> (shift * 4)) as usize & 15]);
    }
}

fn tenant(out: &mut Vec<u8>, seed: u64) {
    let n = mix(seed ^ 0x7e4a) % 16;
    out.extend_from_slice(b"tenant");
    out.push(b'0' + (n / 10) as u8);
    out.push(b'0' + (n % 10) as u8);
    out.push(b'/');
}

/// `salt` 0 gives the rows that are loaded; another salt gives keys of the same shape and
/// from the same time span that are never loaded.
pub fn key(row: u64, salt: u64) -> Vec<u8> {
    let mut k = Vec::with_capacity(60);
    if mix(row).is_multiple_of(5) {
        let seed = row ^ (salt << 48);
        k.push(b'k');
        tenant(&mut k, row);
        k.extend_from_slice(b"req-");
        hex(&mut k, mix(seed ^ 0x51));
        hex(&mut k, mix(seed ^ 0x52));
    } else {
        let job = row / TASKS_PER_JOB;
        job_prefix(&mut k, job, salt);
        let task = row % TASKS_PER_JOB;
        k.extend_from_slice(b"_task-000");
        k.push(b'0' + (task / 10) as u8);
        k.push(b'0' + (task % 10) as u8);
    }
    k
}

/// Table byte, tenant and a job id in the order of time (48 bits of milliseconds first).
pub fn job_prefix(k: &mut Vec<u8>, job: u64, salt: u64) {
    k.push(b'h');
    tenant(k, job);
    k.extend_from_slice(b"job-");
    let seed = job ^ (salt << 48);
    let ms = 1_790_000_000_000 + job * 3;
    hex(k, (ms << 16) | 0x7000 | (mix(seed) & 0xfff));
    hex(k, (mix(seed ^ 0x99) >> 2) | (1 << 63));
}

/// 90 bytes: 40 that do not compress and 50 that do.
pub fn value(row: u64, version: u64) -> Vec<u8> {
    let mut v = Vec::with_capacity(90);
    for i in 0..5 {
        v.extend_from_slice(&mix(row ^ (version << 40) ^ (i << 60)).to_le_bytes());
    }
    v.extend_from_slice(b"\x01completed\x00attempt:1;worker:pool-a;queue:default;ok");
    v.resize(90, 0);
    v
}

/// Batch number `b`: nine tenths new rows, one tenth overwrites of recent rows, sorted, with
/// the position row last.
pub fn batch(b: u64, out: &mut Vec<Row>) {
    out.clear();
    let first = b * NEW_PER_BATCH;
    for i in 0..BATCH - NEW_PER_BATCH {
        if first == 0 {
            break;
        }
        let back = mix(b << 20 | i) % RECENT.min(first);
        let row = first - 1 - back;
        out.push((key(row, 0), value(row, b)));
    }
    for row in first..first + NEW_PER_BATCH {
        out.push((key(row, 0), value(row, b)));
    }
    out.sort();
    out.dedup_by(|x, y| x.0 == y.0);
    out.push((POSITION.to_vec(), (b + 1).to_le_bytes().to_vec()));
}
