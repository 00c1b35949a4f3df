//! The same through the pool: each execution goes to a host process and comes back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidemill_model::{EventId, EventType, Json, TenantId, Timestamp};
use tidemill_script::{Grants, Limits, Pool, PoolConfig, Request, ScriptSource, Subject};
use tokio::runtime::Runtime;

use crate::round::{Round, all_cpu};
use crate::{EVENT, HANDLER};

pub struct Bench {
    pool: Pool,
    request: Request,
}

fn config(size: usize) -> PoolConfig {
    PoolConfig { size, ..PoolConfig::new().expect("this program") }
}

impl Bench {
    pub fn start(runtime: &Runtime, size: usize) -> Self {
        let request = Request {
            script: Arc::new(ScriptSource::new("handler", HANDLER).expect("a script")),
            tenant: TenantId::new("bench").expect("a tenant"),
            execution: EventId::from_u128(0x0193_2c07_5a5a_7abc_9def_0123_4567_89ab),
            now: Timestamp::clamped(1_700_000_000_000),
            subject: Subject::Event {
                id: EventId::from_u128(0x0193_2c07_5a5a_7abc_9def_0123_4567_89ab),
                event_type: EventType::new("order.placed").expect("a type"),
                timestamp: Timestamp::clamped(1_700_000_000_000),
                data: Json::parse(EVENT.to_owned()).expect("JSON"),
            },
            grants: Grants::NONE,
            limits: Limits::default(),
        };
        let pool = runtime.block_on(async { Pool::start(config(size)) }).expect("a pool");
        if let Some(note) = pool.status().note {
            eprintln!("note: {note}");
        }
        Self { pool, request }
    }

    pub fn once(&self, runtime: &Runtime) -> String {
        let done = runtime.block_on(self.pool.execute(&self.request)).expect("it succeeds");
        done.result.as_str().to_owned()
    }

    /// Runs as many executions as fit into the span, `concurrency` at a time.
    pub fn round(&mut self, runtime: &Runtime, concurrency: usize, span: Duration) -> Round {
        // Hosts are started before the clock is.
        runtime.block_on(async {
            let all = (0..concurrency).map(|_| self.one(Duration::from_millis(20)));
            for handle in all.collect::<Vec<_>>() {
                handle.await.expect("no panic");
            }
        });
        let cpu = all_cpu();
        let started = Instant::now();
        let count = runtime.block_on(async {
            let all = (0..concurrency).map(|_| self.one(span));
            let mut count = 0;
            for handle in all.collect::<Vec<_>>() {
                count += handle.await.expect("no panic");
            }
            count
        });
        let wall = started.elapsed();
        Round::of(count, wall, all_cpu().saturating_sub(cpu))
    }

    fn one(&self, span: Duration) -> tokio::task::JoinHandle<u64> {
        let (pool, request) = (self.pool.clone(), self.request.clone());
        tokio::spawn(async move {
            let started = Instant::now();
            let mut count = 0;
            while started.elapsed() < span {
                pool.execute(&request).await.expect("it succeeds");
                count += 1;
            }
            count
        })
    }

    /// One at a time: the median in microseconds.
    pub fn latency(&self, runtime: &Runtime, span: Duration) -> f64 {
        runtime.block_on(async {
            let started = Instant::now();
            let mut times = Vec::new();
            while started.elapsed() < span {
                let before = Instant::now();
                self.pool.execute(&self.request).await.expect("it succeeds");
                times.push(before.elapsed().as_secs_f64() * 1e6);
            }
            times.sort_by(f64::total_cmp);
            times[times.len() / 2]
        })
    }

    /// From a new pool to its first result, in milliseconds.
    pub fn starts(&self, runtime: &Runtime, count: usize) -> Vec<f64> {
        runtime.block_on(async {
            let mut times = Vec::new();
            for _ in 0..count {
                let before = Instant::now();
                let pool = Pool::start(config(1)).expect("a pool");
                pool.execute(&self.request).await.expect("it succeeds");
                times.push(before.elapsed().as_secs_f64() * 1e3);
                pool.end().await;
            }
            times
        })
    }

    pub fn end(self, runtime: &Runtime) {
        runtime.block_on(self.pool.end());
    }
}
