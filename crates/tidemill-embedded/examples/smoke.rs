use std::sync::Arc;
use std::time::Instant;
use tidemill_embedded::{Embedded, StoreOptions};
use tidemill_engine::clock::SystemClock;
use tidemill_engine::command::*;
use tidemill_engine::commit::*;
use tidemill_engine::reply::Reply;
use tidemill_model::*;

fn main() {
    let dir = std::path::PathBuf::from(std::env::args().nth(1).unwrap());
    let t = Instant::now();
    let backend = Arc::new(
        Embedded::open(
            &dir,
            StoreOptions { seed: std::process::id() as u64, ..Default::default() },
            Arc::new(SystemClock::start()),
        )
        .unwrap(),
    );
    println!("open {:?}", t.elapsed());
    let tenant = TenantId::new("acme").unwrap();
    let n: usize = std::env::args().nth(2).unwrap().parse().unwrap();
    let threads: usize = std::env::args().nth(3).unwrap().parse().unwrap();
    // publish
    let t = Instant::now();
    let cpu = cpu_us();
    std::thread::scope(|s| {
        for w in 0..threads {
            let backend = backend.clone();
            let tenant = tenant.clone();
            s.spawn(move || {
                for i in 0..n / threads {
                    let cmd = Command::Publish(Publish {
                        tenant: tenant.clone(),
                        app: AppName::new("shop").unwrap(),
                        context: Context {
                            environment: "dev".into(),
                            origin: "bench".into(),
                            worker_id: None,
                        },
                        events: vec![PublishedEvent {
                            entity: Entity {
                                kind: EntityType::new("STORE").unwrap(),
                                id: EntityId::new(format!("store-{}-{}", w, i / 8)).unwrap(),
                            },
                            event_type: EventType::new("store.changed").unwrap(),
                            timestamp: None,
                            properties: Prepared { id: None, properties: Json::of(&"x".repeat(400)) },
                            ttl: None,
                        }],
                    });
                    for a in backend.execute_blocking(&[cmd]).unwrap() {
                        a.unwrap();
                    }
                }
            });
        }
    });
    let el = t.elapsed();
    println!(
        "publish {} events in {:?}: {:.0}/s cpu {:.1} us/event",
        n,
        el,
        n as f64 / el.as_secs_f64(),
        (cpu_us() - cpu) as f64 / n as f64
    );
    // job of n roots
    let jid = JobId::mint(EventId::from_u128(rand()));
    let tasks: Vec<Arc<TaskSpec>> = (0..n)
        .map(|i| {
            Arc::new(TaskSpec {
                task_id: TaskId::new(format!("t{i}")).unwrap(),
                name: TaskName::new("noop").unwrap(),
                depends_on: vec![],
                input: Json::empty_object(),
                options: Default::default(),
            })
        })
        .collect();
    let t = Instant::now();
    let r = backend
        .execute_blocking(&[Command::SubmitJob(SubmitJob {
            job: NewJob {
                tenant: tenant.clone(),
                app: AppName::new("shop").unwrap(),
                job: jid,
                request: RequestId::new("r").unwrap(),
                name: None,
                created_at: Timestamp::MIN,
                tasks,
            },
            created: Prepared { id: None, properties: Json::empty_object() },
            once: None,
        })])
        .unwrap();
    println!("submit {:?}", t.elapsed());
    assert!(r[0].is_ok());
    let t = Instant::now();
    let cpu = cpu_us();
    std::thread::scope(|s| {
        for w in 0..threads {
            let backend = backend.clone();
            s.spawn(move || {
                let worker = WorkerId::new(format!("w{w}")).unwrap();
                let owner = Owner { worker: format!("w{w}").into(), generation: Some(1) };
                let claim = Command::Claim(Claim {
                    owner,
                    worker: worker.clone(),
                    max: 1,
                    tenants: None,
                    begin: Some(1),
                });
                let mut cmds = vec![claim.clone()];
                loop {
                    let r = backend.execute_blocking(&cmds).unwrap();
                    let Some(Ok(Reply::Claimed { tasks, .. })) = r.into_iter().last() else { panic!() };
                    let Some(task) = tasks.into_iter().next() else { break };
                    cmds = vec![
                        Command::Finish(Finish {
                            task: task.task,
                            fence: task.fence,
                            worker: worker.clone(),
                            report: Report::Completed {
                                output: Some(Json::empty_object()),
                                overflow: None,
                                duration_millis: 1,
                                exit_code: 0,
                                usage: None,
                            },
                        }),
                        claim.clone(),
                    ];
                }
            });
        }
    });
    let el = t.elapsed();
    println!(
        "cycle {} tasks in {:?}: {:.0}/s cpu {:.1} us/task",
        n,
        el,
        n as f64 / el.as_secs_f64(),
        (cpu_us() - cpu) as f64 / n as f64
    );
    let t = Instant::now();
    drop(backend);
    println!("close {:?}", t.elapsed());
}
fn cpu_us() -> u64 {
    let s = std::fs::read_to_string("/proc/self/stat").unwrap();
    let f: Vec<&str> = s.rsplit(')').next().unwrap().split_whitespace().collect();
    (f[11].parse::<u64>().unwrap() + f[12].parse::<u64>().unwrap()) * 10_000
}
fn rand() -> u128 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos()
}
