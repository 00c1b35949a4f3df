//! Places, hosts, limits, ends.

use std::sync::Arc;
use std::time::Duration;

use tidemill_model::{Json, TenantId};
use tidemill_script::{CallKind, ErrorClass, Grants, HostCall, Limits, ScriptSource, Subject, derived_id};

use crate::lab::{self, request, run};

/// One native call that looks at no clock and needs little memory.
const STUCK: &str = "return 'a'.repeat(1e7).indexOf('a'.repeat(5e6) + 'b')";

#[tokio::test]
async fn a_script_sees_its_event_and_its_result_comes_back() {
    let pool = lab::pool(2);
    let mut request = request(
        "acme",
        "console.log('hello', ctx.event.data.user.name);
         const id = ctx.publish('user.greeted', { name: ctx.event.data.user.name });
         return { type: ctx.event.type, at: ctx.event.timestamp, event: ctx.event.id, tenant: ctx.tenant.id, id }",
    );
    request.grants = Grants::NONE.with(CallKind::Publish);
    let done = run(&pool, &request).await.unwrap();
    let id = derived_id(request.execution, 0);
    assert_eq!(
        done.result.as_str(),
        format!(
            r#"{{"type":"user.created","at":1700000000000,"event":"01932c07-5a5a-7abc-9def-0123456789ab","tenant":"acme","id":"{id}"}}"#
        )
    );
    assert_eq!(done.logs[0].text, "hello Ada");
    let [HostCall::Publish { id: called, event_type, data }] = &done.calls[..] else {
        panic!("{:?}", done.calls)
    };
    assert_eq!((*called, event_type.as_str(), data.as_str()), (id, "user.greeted", r#"{"name":"Ada"}"#));
    assert!(done.stats.wall_micros > 0 && done.stats.peak_memory_bytes > 10_000, "{:?}", done.stats);

    // The same execution once more asks for the same.
    let again = run(&pool, &request).await.unwrap();
    assert_eq!(again.result.as_str(), done.result.as_str());
    pool.end().await;
}

#[tokio::test]
async fn a_task_sees_its_input() {
    let pool = lab::pool(1);
    let mut request = request(
        "a",
        "return [ctx.input.n + 1, ctx.input.dependencyOutputs.parent.x, ctx.event, ctx.tenant.id]",
    );
    let input = r#"{"n":1,"dependencyOutputs":{"parent":{"x":"y"}}}"#;
    request.subject = Subject::Task { input: Json::parse(input.to_owned()).unwrap() };
    assert_eq!(run(&pool, &request).await.unwrap().result.as_str(), r#"[2,"y",null,"a"]"#);
    pool.end().await;
}

#[tokio::test]
async fn event_data_is_data_and_nothing_else() {
    let pool = lab::pool(1);
    let source = "const d = ctx.event.data;
        return [({}).polluted, d.constructor === Object, Object.keys(d), d.text, Object.isFrozen(d), Object.isFrozen(d.list[0])]";
    let mut asked = request("a", source);
    let mut with = |data: &str| {
        let Subject::Event { data: place, .. } = &mut asked.subject else { unreachable!() };
        *place = Json::parse(data.to_owned()).unwrap();
        asked.clone()
    };
    let hostile = with(
        r#"{"__proto__":{"polluted":1},"constructor":1,"text":"\"}); throw 1; ({\u0000\u2028`${x}","list":[{}],"taskToken":"t"}"#,
    );
    assert_eq!(
        run(&pool, &hostile).await.unwrap().result.as_str(),
        "[null,true,[\"text\",\"list\"],\"\\\"}); throw 1; ({\u{2028}`${x}\",true,true]"
    );
    let deep = with(&format!("{}1{}", "[".repeat(33), "]".repeat(33)));
    let failure = run(&pool, &deep).await.unwrap_err();
    assert_eq!((failure.class, failure.class.is_transient()), (ErrorClass::Validation, false));
    assert_eq!(failure.message, "ctx.event.data has 33 levels; the limit is 32");
    let large = with(&format!("\"{}\"", "x".repeat(1 << 20)));
    let failure = run(&pool, &large).await.unwrap_err();
    assert_eq!(failure.message, "ctx.event.data has 1048578 bytes; the limit is 1048576");
    pool.end().await;
}

#[tokio::test]
async fn a_failure_has_a_class_a_stack_and_no_calls() {
    let pool = lab::pool(1);
    let mut asked = request("a", "ctx.publish('a', {});\nconsole.warn('before');\nthrow new Error('boom')");
    asked.grants = Grants::ALL;
    let failure = run(&pool, &asked).await.unwrap_err();
    assert_eq!((failure.class, failure.message.as_str()), (ErrorClass::Script, "Error: boom"));
    assert_eq!((failure.stack.as_str(), failure.place), ("    at main (test:3:11)", Some((3, 11))));
    assert_eq!(failure.logs[0].text, "before");
    assert!(failure.class.is_transient());

    asked.grants = Grants::NONE;
    let failure = run(&pool, &asked).await.unwrap_err();
    assert_eq!(failure.class, ErrorClass::Permission);
    assert_eq!(failure.message, "PermissionError: ctx.publish: this script has no grant `publish`");
    assert!(!failure.class.is_transient());
    pool.end().await;
}

#[tokio::test]
async fn a_host_that_does_not_yield_is_killed_and_replaced() {
    let pool = lab::pool(2);
    let mut stuck = request("a", STUCK);
    stuck.limits.wall = Duration::from_millis(100);
    let failure = run(&pool, &stuck).await.unwrap_err();
    assert_eq!(failure.class, ErrorClass::Timeout);
    assert_eq!(failure.message, "the script ran longer than 100 ms and did not yield");
    assert_eq!(pool.status().hosts_lost, 1);
    assert_eq!(run(&pool, &request("a", "return 1")).await.unwrap().result.as_str(), "1");

    // A host that dies on its own is told apart from one that we killed.
    let pid = pool.status().idle[0];
    kill(pid, "-KILL");
    while lab::is_alive(pid) {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        run(&pool, &request("a", "return 2")).await.unwrap().result.as_str(),
        "2",
        "an idle host is checked first"
    );
    pool.end().await;
}

#[tokio::test]
async fn a_host_that_is_killed_from_outside_fails_only_its_execution() {
    let pool = lab::pool(2);
    run(&pool, &request("a", "return 0")).await.unwrap();
    while pool.status().idle.len() < pool.status().hosts.len() {
        tokio::task::yield_now().await;
    }
    let slow = request("a", "for (;;) {}");
    let (started, before) = (pool.clone(), pool.status().hosts_started);
    let running = tokio::spawn(async move { run(&started, &slow).await });
    let pid = loop {
        let status = pool.status();
        let busy = status.hosts.iter().find(|pid| !status.idle.contains(pid) && is_at_work(**pid));
        if let Some(pid) = busy {
            break *pid;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    };
    kill(pid, "-SEGV");
    let failure = running.await.unwrap().unwrap_err();
    assert_eq!(failure.class, ErrorClass::Internal, "{failure:?}");
    assert!(failure.message.contains("signal: 11"), "{failure}");
    assert!(failure.class.is_transient());
    assert_eq!(run(&pool, &request("a", "return 3")).await.unwrap().result.as_str(), "3");
    assert_eq!(pool.status().hosts_lost, 1);
    assert!(pool.status().hosts_started >= before);
    pool.end().await;
}

/// Whether a host has confined itself and uses the CPU.
fn is_at_work(pid: u32) -> bool {
    let state = lab::status_field(pid, "State").unwrap_or_default();
    state.starts_with('R') && lab::is_confined(pid)
}

fn kill(pid: u32, signal: &str) {
    let status = std::process::Command::new("kill").args([signal, &pid.to_string()]).status().unwrap();
    assert!(status.success());
}

#[tokio::test]
async fn giving_up_an_execution_frees_its_place() {
    let pool = lab::pool(1);
    run(&pool, &request("a", "return 0")).await.unwrap();
    let endless = request("a", "for (;;) {}");
    let given_up = tokio::time::timeout(Duration::from_millis(50), pool.execute(&endless)).await;
    assert!(given_up.is_err());
    // So does giving up while waiting.
    let (busy, also) = (pool.clone(), endless.clone());
    let running = tokio::spawn(async move { busy.execute(&also).await });
    while pool.status().running == 0 {
        tokio::task::yield_now().await;
    }
    assert!(tokio::time::timeout(Duration::from_millis(20), pool.execute(&endless)).await.is_err());
    running.abort();
    assert!(running.await.unwrap_err().is_cancelled());
    assert_eq!(run(&pool, &request("a", "return 1")).await.unwrap().result.as_str(), "1");
    let status = pool.status();
    assert_eq!((status.running, status.waiting), (0, 0));
    pool.end().await;
}

#[tokio::test]
async fn executions_run_at_the_same_time_up_to_the_size_of_the_pool() {
    let pool = lab::pool(3);
    let source = "for (;;) {}";
    let mut asked = request("a", source);
    asked.limits.wall = Duration::from_millis(300);
    let running: Vec<_> = (0..7)
        .map(|_| {
            let (pool, asked) = (pool.clone(), asked.clone());
            tokio::spawn(async move { run(&pool, &asked).await.unwrap_err().class })
        })
        .collect();
    let mut most = 0;
    for handle in running {
        most = most.max(pool.status().running);
        assert_eq!(handle.await.unwrap(), ErrorClass::Timeout);
        assert!(pool.status().running <= 3);
    }
    assert_eq!(most, 3);
    assert!(pool.status().hosts_started <= 4, "hosts are used again, {:?}", pool.status());
    pool.end().await;
}

#[tokio::test]
async fn a_tenant_that_holds_the_whole_pool_keeps_nobody_waiting() {
    let pool = lab::pool(2);
    // Far longer than this test waits.
    let mut slow = request("greedy", "for (;;) {}");
    slow.limits.wall = Duration::from_secs(600);
    let greedy: Vec<_> = (0..6)
        .map(|_| {
            let (pool, slow) = (pool.clone(), slow.clone());
            tokio::spawn(async move { pool.execute(&slow).await })
        })
        .collect();
    while pool.status().running < 2 {
        tokio::task::yield_now().await;
    }
    for _ in 0..5 {
        let done = run(&pool, &request("modest", "return 'on time'")).await.unwrap();
        assert_eq!(done.result.as_str(), r#""on time""#);
    }
    assert_eq!(pool.status().running, 2, "what was lent was given back");
    for handle in &greedy {
        handle.abort();
    }
    for handle in greedy {
        let _ = handle.await;
    }
    pool.end().await;
}

#[tokio::test]
async fn idle_hosts_end_but_for_one() {
    let pool = tidemill_script::Pool::start(tidemill_script::PoolConfig {
        idle: Duration::from_millis(30),
        ..lab::config(4)
    })
    .unwrap();
    let asked = request("a", "return 1");
    let runs = (0..4).map(|_| {
        let (pool, mut asked) = (pool.clone(), asked.clone());
        asked.script =
            Arc::new(ScriptSource::new("test", "let n = 0; while (n < 3e5) n++; return n").unwrap());
        tokio::spawn(async move { run(&pool, &asked).await.unwrap() })
    });
    for handle in runs.collect::<Vec<_>>() {
        handle.await.unwrap();
    }
    tokio::time::timeout(lab::HANG, async {
        while pool.status().idle.len() != 1 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .expect("idle hosts stay");
    run(&pool, &asked).await.unwrap();
    pool.end().await;
}

#[tokio::test]
async fn a_worn_host_is_replaced() {
    let pool = tidemill_script::Pool::start(tidemill_script::PoolConfig {
        host_cpu: Duration::from_secs(1),
        ..lab::config(1)
    })
    .unwrap();
    let mut busy = request("a", "for (;;) {}");
    busy.limits.wall = Duration::from_millis(1_200);
    assert_eq!(run(&pool, &busy).await.unwrap_err().class, ErrorClass::Timeout);
    let before = pool.status();
    assert_eq!(run(&pool, &request("a", "return 1")).await.unwrap().result.as_str(), "1");
    let after = pool.status();
    assert!(after.hosts_started >= 2 && after.hosts_lost == 0, "{before:?} {after:?}");
    pool.end().await;
}

#[tokio::test]
async fn a_dropped_pool_leaves_no_process() {
    let pool = lab::pool(2);
    run(&pool, &request("a", "return 1")).await.unwrap();
    let idle = pool.status().idle;
    assert!(!idle.is_empty());
    pool.end().await;
    assert!(idle.into_iter().all(|pid| !lab::is_alive(pid)));
}

#[tokio::test]
async fn a_program_that_is_no_host_is_told() {
    let mut config = lab::config(1);
    config.program = "/bin/true".into();
    let pool = tidemill_script::Pool::start(config).unwrap();
    let failure = run(&pool, &request("a", "return 1")).await.unwrap_err();
    assert_eq!(failure.class, ErrorClass::Internal);
    assert!(
        failure.message.starts_with("no script host can be started: a script host did not start"),
        "{failure}"
    );
    pool.end().await;
}

#[tokio::test]
async fn many_scripts_go_through_one_host_and_are_sent_again_when_it_forgot_them() {
    let pool = lab::pool(1);
    let scripts: Vec<_> =
        (0..300).map(|n| Arc::new(ScriptSource::new("many", format!("return {n}")).unwrap())).collect();
    for _ in 0..2 {
        for (n, script) in scripts.iter().enumerate() {
            let done = run(&pool, &lab::request_of("a", Arc::clone(script))).await.unwrap();
            assert_eq!(done.result.as_str(), n.to_string());
        }
    }
    assert!(pool.status().hosts_started <= 2, "one to be kept warm, one because it was not ready yet");
    pool.end().await;
}

#[tokio::test]
async fn limits_beyond_what_the_pool_has_are_cut() {
    let pool = lab::pool(1);
    let mut asked = request("a", "const a = []; for (;;) a.push('x'.repeat(1000) + a.length)");
    asked.limits = Limits { memory_bytes: usize::MAX, ..asked.limits };
    let failure = run(&pool, &asked).await.unwrap_err();
    assert_eq!(failure.class, ErrorClass::Memory);
    assert_eq!(failure.message, "the script needs more than 134217728 bytes of memory");
    assert_eq!(pool.status().hosts_lost, 0, "the host goes on");
    pool.end().await;
}

/// Not a test of its own: the process that the next test kills.
#[tokio::test]
#[ignore = "started by another test"]
async fn a_process_that_starts_a_pool_and_waits() {
    let pool = lab::pool(1);
    run(&pool, &request("a", "return 1")).await.unwrap();
    // One of its hosts is idle, the other is busy and looks at nothing.
    let busy = pool.clone();
    let endless = request("a", STUCK);
    tokio::spawn(async move { busy.execute(&endless).await });
    while pool.status().running == 0 {
        tokio::task::yield_now().await;
    }
    println!("\nhosts {:?}", pool.status().hosts);
    std::future::pending::<()>().await;
}

#[test]
fn hosts_die_with_the_process_that_started_them() {
    use std::io::{BufRead, BufReader};
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "pool::a_process_that_starts_a_pool_and_waits", "--ignored", "--nocapture"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let hosts = lines
        .map_while(Result::ok)
        .find_map(|line| Some(line.strip_prefix("hosts [")?.strip_suffix(']')?.to_owned()));
    let hosts: Vec<u32> = hosts.unwrap().split(", ").map(|pid| pid.parse().unwrap()).collect();
    assert!(!hosts.is_empty() && hosts.iter().all(|pid| lab::is_alive(*pid)));
    child.kill().unwrap();
    child.wait().unwrap();
    let waited = std::time::Instant::now();
    while hosts.iter().any(|pid| lab::is_alive(*pid)) {
        assert!(waited.elapsed() < lab::HANG, "{hosts:?} live on");
        std::thread::yield_now();
    }
}

/// A script that breaks out of the engine finds nothing of another tenant, now or later.
#[tokio::test]
async fn a_host_serves_one_tenant() {
    let pool = lab::pool(4);
    let tenants = ["a", "b", "c", "d"];
    for tenant in tenants {
        run(&pool, &request(tenant, "return 1")).await.unwrap();
    }
    assert!(pool.status().hosts.len() >= 4, "{:?}", pool.status());
    let started = pool.status().hosts_started;
    for tenant in tenants {
        run(&pool, &request(tenant, "return 2")).await.unwrap();
    }
    assert_eq!(pool.status().hosts_started, started, "each has its own again");
    for n in 0..6 {
        let tenant = TenantId::new(format!("t{n}")).unwrap();
        assert!(pool.compile(&tenant, "c", "return 1").await.unwrap().is_ok());
        run(&pool, &request(tenant.as_str(), "return 1")).await.unwrap();
        assert!(pool.status().hosts.len() <= 6, "as many as may run at a time: {:?}", pool.status());
    }
    pool.end().await;
}
