//! What a task that runs `/bin/true` costs, beside a bare posix_spawn and wait in turns.
//!
//! Times are per task and slot: wall time times the number of slots, divided by the number of tasks. One commit lies
//! between the end of a task and the start of the next one in its slot, so one bare commit is allowed for.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::Setting;
use crate::bare_log::{preallocated, write_padded};
use crate::figure::{Figure, Goal, Report};
use crate::latency::{Latencies, median};
use crate::process::{own_cpu, spawn_and_wait};
use crate::server::Server;

const PROGRAM: &str = "/bin/true";
/// Few, as by default, and more than two cores can run at a time: there the CPU alone decides.
const SLOTS: [usize; 3] = [2, 3, 6];
const RESIDENT_BYTES: u64 = 2 << 30;
/// A part of the memory that is loaded: inputs of tasks that wait.
const INPUT_BYTES: usize = 100_000;
const INPUTS_PER_REQUEST: usize = 120;
const POLL: Duration = Duration::from_millis(200);

pub fn measure(setting: Setting<'_>, report: &mut Report) {
    for slots in SLOTS {
        let server = Server::start(setting.binary, &fresh(setting.dir, &format!("command-{slots}")), slots);
        beside_bare(setting, &server, slots, Load::default(), report);
    }
    let data = fresh(setting.dir, "resident");
    let wanted = if setting.quick { RESIDENT_BYTES / 8 } else { RESIDENT_BYTES };
    load(setting.binary, &data, wanted);
    for slots in SLOTS {
        // The directory is opened again: what is resident then is the live work.
        let server = Server::start(setting.binary, &data, slots);
        wait_until_calm(&server);
        let load = Load { wanted, resident: server.usage().resident_bytes };
        beside_bare(setting, &server, slots, load, report);
    }
    for name in SLOTS.map(|slots| format!("command-{slots}")).iter().chain([&"resident".to_owned()]) {
        let _ = std::fs::remove_dir_all(setting.dir.join(name));
    }
}

/// A directory that is not there yet. It is removed after all rows: ext4 without a journal is slow to make files for a
/// minute after many were removed, which would be charged to the row that comes next.
fn fresh(dir: &Path, name: &str) -> PathBuf {
    let data = dir.join(name);
    let _ = std::fs::remove_dir_all(&data);
    data
}

/// What was to be resident in the server, and what is.
#[derive(Clone, Copy, Default)]
struct Load {
    wanted: u64,
    resident: u64,
}

impl Load {
    fn is_there(self) -> bool {
        self.resident >= self.wanted
    }

    fn kind(self) -> String {
        if self.wanted == 0 {
            return String::new();
        }
        format!(", {:.2} GiB resident", self.resident as f64 / f64::from(1 << 30))
    }
}

struct Spent {
    /// Per task and slot.
    millis: f64,
    /// Per task, commits included.
    cpu_micros: f64,
    /// Of that, commits.
    commit_micros: f64,
}

fn beside_bare(setting: Setting<'_>, server: &Server, slots: usize, load: Load, report: &mut Report) {
    let kind = load.kind();
    let (rounds, tasks) = if setting.quick { (2, 200) } else { (5, 1_000) };
    let path = setting.dir.join("bare.log");
    let file = preallocated(&path, 16 << 20);
    let mut offset = 0;
    let (mut ours, mut bares, mut commits) = (Vec::new(), Vec::new(), Latencies::default());
    run_job(server, slots, tasks / 4);
    for _ in 0..rounds {
        bares.push(bare(slots, tasks));
        time_commits(&file, &mut offset, &mut commits);
        ours.push(run_job(server, slots, tasks));
    }
    let _ = std::fs::remove_file(path);
    let millis = |spent: &[Spent]| median(&spent.iter().map(|one| one.millis).collect::<Vec<_>>());
    let cpu = |spent: &[Spent]| median(&spent.iter().map(|one| one.cpu_micros).collect::<Vec<_>>());
    let commit_cpu = median(&ours.iter().map(|one| one.commit_micros).collect::<Vec<_>>());
    let cpu_ratio = (cpu(&ours) - commit_cpu) / cpu(&bares);
    let commit = commits.p50() / 1e3;
    let doubt = if !commits.is_steady() {
        "; not judged: bare commits were not steady"
    } else if !load.is_there() {
        "; not judged: the load is not resident"
    } else {
        ""
    };
    let pairs: Vec<f64> =
        ours.iter().zip(&bares).map(|(one, bare)| (one.millis - commit) / bare.millis).collect();
    report.push(
        Figure::new(
            "command",
            format!("{PROGRAM}, {slots} at a time{kind}, less one commit"),
            millis(&ours) - commit,
            "ms",
        )
        .with_ratio("bare posix_spawn and wait", millis(&bares), median(&pairs))
        .goal_if(doubt.is_empty(), Goal::AtMost(1.5))
        .note(format!(
            "commit {commit:.2} ms; CPU per task {:.0} µs, of it commits {commit_cpu:.0} µs, bare {:.0} µs: {cpu_ratio:.2} × \
             without commits; {:.0} tasks/s, bare {:.0}/s{doubt}",
            cpu(&ours),
            cpu(&bares),
            slots as f64 * 1e3 / millis(&ours),
            slots as f64 * 1e3 / millis(&bares),
        )),
    );
}

fn bare(slots: usize, tasks: usize) -> Spent {
    let (start, cpu) = (Instant::now(), own_cpu());
    std::thread::scope(|scope| {
        for slot in 0..slots {
            scope.spawn(move || (slot..tasks).step_by(slots).for_each(|_| spawn_and_wait(PROGRAM)));
        }
    });
    let used = [(own_cpu() - cpu).as_secs_f64(), 0.0];
    spent(start.elapsed().as_secs_f64() * 1e3, used, slots, tasks)
}

fn time_commits(file: &File, offset: &mut u64, commits: &mut Latencies) {
    *offset = 0;
    for _ in 0..100 {
        let mut bytes = vec![b'x'; 1_500];
        commits.time(|| {
            write_padded(file, &mut bytes, offset);
            file.sync_data().expect("the disk syncs");
        });
    }
}

fn run_job(server: &Server, slots: usize, tasks: usize) -> Spent {
    let list: Vec<Value> =
        (0..tasks).map(|index| json!({ "taskId": format!("t{index}"), "run": [PROGRAM] })).collect();
    let mut connection = server.connect();
    let (start, cpu, commits) = (Instant::now(), server.usage().cpu, server.commit_cpu());
    let accepted = connection.post("/v1/jobs", &json!({ "tasks": list })).expect("the server answers").good();
    let job = accepted["jobId"].as_str().expect("a job has an id").to_owned();
    loop {
        std::thread::sleep(POLL);
        // The list tells how the newest job stands. The job by itself comes with all its tasks: asked for often, that would
        // be a part of what is measured.
        let mut list = connection.get("/v1/jobs?limit=1").expect("the server answers").good();
        let found = list["items"][0].take();
        assert_eq!(found["jobId"].as_str(), Some(job.as_str()), "the newest job comes first");
        match found["status"].as_str() {
            Some("completed") => {
                // The server's own moments are exact; asking more often would cost it time.
                let exact = found["completedAt"].as_f64().zip(found["createdAt"].as_f64());
                let wall = exact.map_or(start.elapsed().as_secs_f64() * 1e3, |(end, begin)| end - begin);
                let cpu = server.usage().cpu.saturating_sub(cpu);
                let used = [cpu, server.commit_cpu().saturating_sub(commits)].map(|time| time.as_secs_f64());
                return spent(wall, used, slots, tasks);
            }
            Some("running") => {}
            other => panic!("the job is {other:?}"),
        }
    }
}

fn spent(wall_millis: f64, cpu_secs: [f64; 2], slots: usize, tasks: usize) -> Spent {
    let [cpu_micros, commit_micros] = cpu_secs.map(|secs| secs * 1e6 / tasks as f64);
    Spent { millis: wall_millis * slots as f64 / tasks as f64, cpu_micros, commit_micros }
}

/// Fills a server's memory with live work: large inputs of tasks that wait for one that does not end.
fn load(binary: &Path, data: &Path, wanted: u64) {
    let server = Server::start(binary, data, 1);
    let mut connection = server.connect();
    let text = "x".repeat(INPUT_BYTES);
    let requests = wanted.div_ceil((INPUT_BYTES * INPUTS_PER_REQUEST) as u64);
    // It fails once and is tried again in a week: the job is open meanwhile and takes no slot.
    let retry = json!({ "maxAttempts": 2, "firstDelay": "7d", "maxDelay": "7d" });
    let hold = json!({ "taskId": "hold", "run": "exit 1", "retry": retry });
    // A job for each request: the tasks of one job have a limit together.
    for _ in 0..requests {
        let mut tasks = vec![hold.clone()];
        tasks.extend((0..INPUTS_PER_REQUEST).map(|index| {
            json!({
                "taskId": format!("l{index}"), "run": [PROGRAM], "dependsOn": ["hold"],
                "input": { "text": text },
            })
        }));
        connection.post("/v1/jobs", &json!({ "tasks": tasks })).expect("the server answers").good();
    }
}

/// Waits until the server has ended what it does in the background after a large load.
fn wait_until_calm(server: &Server) {
    for _ in 0..120 {
        let before = server.usage().cpu;
        std::thread::sleep(Duration::from_secs(1));
        if server.usage().cpu - before < Duration::from_millis(50) {
            return;
        }
    }
}
