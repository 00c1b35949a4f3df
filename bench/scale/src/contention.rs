//! Processes that race for the next item of one log.
//!
//! Commands arrive at random, the same share at each process. A process puts all that has come as one group; if another put the
//! item first, it takes in what the other wrote and puts again. Time is counted, not waited for; the same seed gives the same run.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// A request to the table within the region: most take a few milliseconds, few much longer.
const REQUEST_MICROS: f64 = 4_000.0;
const SLOW_MICROS: f64 = 20_000.0;
const SLOW_SHARE: f64 = 0.01;
/// What the deciding core takes for a command.
const DECIDE_MICROS: u64 = 30;
const GROUP_MAX: usize = 2_000;
/// How long after a commit of another process this one expects it to commit again.
const CONTENDED_MICROS: u64 = 1_000_000;
const RUN_MICROS: u64 = 60_000_000;
/// Commands are not counted while the run warms up.
const WARM_MICROS: u64 = 10_000_000;

/// How a process treats the others.
#[derive(Debug, Clone, Copy)]
pub struct Manners {
    /// What a process that lost reads before it can try again.
    pub reads: u32,
    /// After this many groups in a row, with more waiting, the process leaves a gap.
    pub in_a_row: u32,
    /// The same while others commit too.
    pub in_a_row_contended: u32,
    /// How many requests' time the gap lasts.
    pub gap: f64,
    /// How many commands a group takes while others commit too.
    pub group_max_contended: usize,
}

/// Each as fast as it can.
pub const GREEDY: Manners = Manners {
    reads: 3,
    in_a_row: u32::MAX,
    in_a_row_contended: u32::MAX,
    gap: 0.0,
    group_max_contended: GROUP_MAX,
};

/// As `tidemill-aws` does it: the refusal of a put tells what is there, one more read the rest.
pub const POLITE: Manners =
    Manners { reads: 1, in_a_row: 16, in_a_row_contended: 1, gap: 2.0, group_max_contended: 50 };

#[derive(Debug, Clone, Copy)]
pub struct Race {
    pub processes: usize,
    pub commands_per_second: u64,
    pub manners: Manners,
}

#[derive(Debug)]
pub struct Outcome {
    pub committed_per_second: f64,
    pub p50_millis: f64,
    pub p99_millis: f64,
    /// Puts for each item of the log.
    pub puts_per_group: f64,
    pub commands_per_group: f64,
    /// What the slowest process got done, as a share of what it was asked for.
    pub least_served: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    Command,
    /// The put is at the table.
    Arrives,
    /// The process has the answer to its put.
    Answered,
    /// The process has read what it lacked.
    CaughtUp,
    /// The gap for others is over.
    GoesOn,
}

#[derive(Default)]
struct Process {
    waiting: VecDeque<u64>,
    /// The commands of the put that is on its way, by when they were asked for.
    group: Vec<u64>,
    known: u64,
    is_busy: bool,
    won: bool,
    /// How long the answer to a put on its way takes after it arrived.
    back: u64,
    in_a_row: u32,
    /// Until when others are expected to commit, too.
    contended_until: u64,
    asked: u64,
    served: u64,
}

struct Run {
    race: Race,
    random: Random,
    events: BinaryHeap<Reverse<(u64, u64, usize, What)>>,
    count: u64,
    processes: Vec<Process>,
    log: u64,
    puts: u64,
    latencies: Vec<u64>,
}

pub fn run(race: Race) -> Outcome {
    let mut run = Run {
        race,
        random: Random(0x9E37_79B9_7F4A_7C15),
        events: BinaryHeap::new(),
        count: 0,
        processes: (0..race.processes).map(|_| Process::default()).collect(),
        log: 0,
        puts: 0,
        latencies: Vec::new(),
    };
    for at in 0..race.processes {
        run.next_command(0, at);
    }
    while let Some(Reverse((now, _, at, what))) = run.events.pop() {
        if now > RUN_MICROS {
            break;
        }
        run.step(now, at, what);
    }
    run.outcome()
}

impl Run {
    fn plan(&mut self, when: u64, at: usize, what: What) {
        self.count += 1;
        self.events.push(Reverse((when, self.count, at, what)));
    }

    fn next_command(&mut self, now: u64, at: usize) {
        let mean = 1e6 * self.race.processes as f64 / self.race.commands_per_second as f64;
        let pause = -mean * (1.0 - self.random.share()).ln();
        self.plan(now + pause as u64, at, What::Command);
    }

    fn request(&mut self) -> u64 {
        let mean = if self.random.share() < SLOW_SHARE { SLOW_MICROS } else { REQUEST_MICROS };
        (mean * (0.75 + 0.5 * self.random.share())) as u64
    }

    fn step(&mut self, now: u64, at: usize, what: What) {
        match what {
            What::Command => {
                let process = &mut self.processes[at];
                process.waiting.push_back(now);
                process.asked += u64::from(now >= WARM_MICROS);
                self.next_command(now, at);
                if !self.processes[at].is_busy {
                    self.begin(now, at);
                }
            }
            What::Arrives => {
                self.puts += 1;
                let process = &mut self.processes[at];
                process.won = process.known == self.log;
                self.log += u64::from(process.won);
                let back = process.back;
                self.plan(now + back, at, What::Answered);
            }
            What::Answered if self.processes[at].won => self.won(now, at),
            What::Answered => {
                let time: u64 = (0..self.race.manners.reads).map(|_| self.request()).sum();
                self.plan(now + time, at, What::CaughtUp);
            }
            What::CaughtUp => {
                let process = &mut self.processes[at];
                process.known = self.log;
                process.in_a_row = 0;
                process.contended_until = now + CONTENDED_MICROS;
                self.begin(now, at);
            }
            What::GoesOn => self.begin(now, at),
        }
    }

    fn won(&mut self, now: u64, at: usize) {
        let manners = self.race.manners;
        let process = &mut self.processes[at];
        process.known += 1;
        for asked in std::mem::take(&mut process.group).into_iter().filter(|asked| *asked >= WARM_MICROS) {
            process.served += 1;
            self.latencies.push(now - asked);
        }
        if process.waiting.is_empty() {
            (process.is_busy, process.in_a_row) = (false, 0);
            return;
        }
        process.in_a_row += 1;
        let is_contended = now < process.contended_until;
        let limit = if is_contended { manners.in_a_row_contended } else { manners.in_a_row };
        if process.in_a_row >= limit {
            process.in_a_row = 0;
            self.plan(now + (manners.gap * REQUEST_MICROS) as u64, at, What::GoesOn);
        } else {
            self.begin(now, at);
        }
    }

    /// Decides what waits, together with what could not be put before, and puts it.
    fn begin(&mut self, now: u64, at: usize) {
        let time = self.request();
        let process = &mut self.processes[at];
        let is_contended = now < process.contended_until;
        let max = if is_contended { self.race.manners.group_max_contended } else { GROUP_MAX };
        while process.group.len() > max {
            process.waiting.extend(process.group.pop());
            process.waiting.rotate_right(1);
        }
        while process.group.len() < max
            && let Some(command) = process.waiting.pop_front()
        {
            process.group.push(command);
        }
        process.is_busy = true;
        process.back = time - time / 2;
        let decided = now + DECIDE_MICROS * process.group.len() as u64;
        self.plan(decided + time / 2, at, What::Arrives);
    }

    fn outcome(mut self) -> Outcome {
        self.latencies.sort_unstable();
        let part = |share: f64| {
            let last = self.latencies.len().saturating_sub(1);
            self.latencies.get((last as f64 * share) as usize).map_or(f64::NAN, |micros| *micros as f64 / 1e3)
        };
        let seconds = (RUN_MICROS - WARM_MICROS) as f64 / 1e6;
        let committed = self.latencies.len() as f64;
        let served = |process: &Process| process.served as f64 / process.asked.max(1) as f64;
        Outcome {
            committed_per_second: committed / seconds,
            p50_millis: part(0.5),
            p99_millis: part(0.99),
            puts_per_group: self.puts as f64 / self.log.max(1) as f64,
            commands_per_group: committed / seconds * RUN_MICROS as f64 / 1e6 / self.log.max(1) as f64,
            least_served: self.processes.iter().map(served).fold(f64::INFINITY, f64::min),
        }
    }
}

/// xorshift64*: the same numbers in every run.
struct Random(u64);

impl Random {
    /// From 0 up to, not including, 1.
    fn share(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 11) as f64 / (1u64 << 53) as f64
    }
}
