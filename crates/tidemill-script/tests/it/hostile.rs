//! Scripts that mean harm. Each has a row that says how it must end; whatever it does, others' scripts are served.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tidemill_script::ErrorClass::{
    Memory, Output, Permission, Script as Thrown, Syntax, Timeout, Validation,
};
use tidemill_script::{
    CallKind, CompletedExecution, ErrorClass, FailedExecution, Grants, Pool, ScriptSource, limits,
};

use crate::lab::{self, request, request_of, run};

/// How a script must end. Where more than one class is named, it depends on how fast the machine is which limit comes first.
#[derive(Debug, Clone, Copy)]
enum End {
    Fails(&'static [ErrorClass]),
    /// With this result.
    Returns(&'static str),
}

use End::{Fails, Returns};

const TIME: End = Fails(&[Timeout]);
const MEMORY: End = Fails(&[Memory]);
const SLOW_OR_LARGE: End = Fails(&[Timeout, Memory]);
const THROWN: End = Fails(&[Thrown]);
const OUTPUT: End = Fails(&[Output]);
const PERMISSION: End = Fails(&[Permission]);
const VALIDATION: End = Fails(&[Validation]);
const SYNTAX: End = Fails(&[Syntax]);

const ROWS: &[(&str, End)] = &[
    ("array_detached_in_callback", THROWN),
    ("array_species", THROWN),
    ("bigint_power", Fails(&[Timeout, Memory, Thrown])),
    ("bigint_to_string", Fails(&[Timeout, Memory, Thrown])),
    ("call_bad_data", VALIDATION),
    ("call_bad_type", VALIDATION),
    ("call_caught", Returns("3")),
    ("call_detached", PERMISSION),
    ("call_flood", VALIDATION),
    ("call_huge_type", VALIDATION),
    ("call_large", VALIDATION),
    ("call_large_sum", VALIDATION),
    ("call_reentrant", THROWN),
    ("call_then_throw", PERMISSION),
    ("call_without_grant", PERMISSION),
    ("console_endless_getter", TIME),
    ("console_evil_values", Returns(r#""survived""#)),
    ("console_flood", Returns(r#""survived""#)),
    ("console_huge", Returns(r#""survived""#)),
    ("ctx_define", THROWN),
    ("ctx_delete", THROWN),
    ("ctx_in_proxy", Returns(r#"["evil","mine",5]"#)),
    ("ctx_prototype", THROWN),
    ("ctx_replace", THROWN),
    ("ctx_write", THROWN),
    ("escape_arguments", THROWN),
    ("escape_async_function", THROWN),
    ("escape_atomics", THROWN),
    ("escape_caller", THROWN),
    ("escape_eval", THROWN),
    ("escape_fetch", THROWN),
    ("escape_finalization", THROWN),
    ("escape_function", THROWN),
    ("escape_generator_function", THROWN),
    ("escape_import", THROWN),
    ("escape_import_std", THROWN),
    ("escape_indirect_eval", THROWN),
    ("escape_reflect", THROWN),
    ("escape_require", THROWN),
    ("escape_shared_memory", THROWN),
    ("escape_this", Returns(r#"["undefined","undefined"]"#)),
    ("escape_timer", THROWN),
    ("escape_weak_ref", THROWN),
    ("generator_async_leak", MEMORY),
    ("generator_endless", MEMORY),
    ("generator_return_trap", TIME),
    ("json_deep_parse", THROWN),
    ("json_deep_result", OUTPUT),
    ("json_reviver", TIME),
    ("json_wide_result", SLOW_OR_LARGE),
    (
        "leak_look",
        Returns(
            r#""[\"undefined\",\"undefined\",\"undefined\",1,\"undefined\",\"number\",\"number\",\"undefined\",\"undefined\"]""#,
        ),
    ),
    ("leak_set", Returns(r#""set""#)),
    ("loop_await", TIME),
    ("loop_busy_clock", TIME),
    ("loop_endless", TIME),
    ("loop_finally_continue", TIME),
    ("loop_in_catch_and_finally", TIME),
    ("loop_in_promise_executor", TIME),
    ("loop_microtask", TIME),
    ("loop_native_index_of", TIME),
    ("loop_native_join", SLOW_OR_LARGE),
    ("loop_native_reverse", TIME),
    ("loop_native_search", TIME),
    ("loop_set_like", TIME),
    ("loop_thenable", TIME),
    ("memory_array_fill", MEMORY),
    ("memory_array_from", MEMORY),
    ("memory_arrays", MEMORY),
    ("memory_buffer_at_once", Fails(&[Memory, Thrown])),
    ("memory_caught", MEMORY),
    ("memory_closures", MEMORY),
    ("memory_linked_list", MEMORY),
    ("memory_map", MEMORY),
    ("memory_properties", MEMORY),
    ("memory_symbols", MEMORY),
    ("memory_typed_arrays", MEMORY),
    ("pollute_array_index", PERMISSION),
    ("pollute_error", PERMISSION),
    ("pollute_iterators", Returns(r#""survived""#)),
    ("pollute_json", Returns(r#""survived""#)),
    ("pollute_object", Returns(r#""owned""#)),
    ("promise_flood", MEMORY),
    ("promise_flood_all", MEMORY),
    ("promise_never", THROWN),
    ("promise_never_all", THROWN),
    ("promise_patched", Returns(r#""survived""#)),
    ("promise_unhandled", Returns(r#""survived""#)),
    ("recursion_async", THROWN),
    ("recursion_bound", MEMORY),
    ("recursion_function", THROWN),
    ("recursion_getter", THROWN),
    ("recursion_proxy", THROWN),
    ("recursion_proxy_chain", THROWN),
    ("recursion_replace", THROWN),
    ("recursion_to_json", OUTPUT),
    ("recursion_to_string", THROWN),
    ("regex_backtracking", TIME),
    ("regex_lookbehind", TIME),
    ("regex_nested_groups", TIME),
    ("regex_quantifier_bomb", Fails(&[Timeout, Memory, Thrown])),
    ("result_bigint", OUTPUT),
    ("result_circular", OUTPUT),
    ("result_huge", OUTPUT),
    ("result_proxy", OUTPUT),
    ("result_surrogates", Returns(r#"{"\ud800":"\udc00","text":"\u0000"}"#)),
    ("sort_endless_comparator", TIME),
    ("sort_inconsistent_comparator", Returns(r#""survived""#)),
    ("sort_resized_buffer", Returns("0")),
    ("stack_trace_hook", Returns(r#""string""#)),
    ("string_doubling", THROWN),
    ("string_flattened", MEMORY),
    ("string_pad", MEMORY),
    ("string_repeat", Fails(&[Memory, Thrown])),
    ("string_replace", Fails(&[Memory, Thrown])),
    ("string_split", MEMORY),
    ("syntax_await_in_sync", SYNTAX),
    ("syntax_close_and_call", SYNTAX),
    ("syntax_close_function", SYNTAX),
    ("syntax_deep", SYNTAX),
    ("syntax_octal", SYNTAX),
    ("syntax_with", SYNTAX),
    ("throw_endless_stack", TIME),
    ("throw_fake_class", THROWN),
    ("throw_getters", THROWN),
    ("throw_huge", THROWN),
    ("throw_nul_and_newlines", THROWN),
    ("throw_null", THROWN),
    ("throw_proxy", THROWN),
    ("throw_revoked_proxy", THROWN),
    ("throw_symbol", THROWN),
    ("throw_to_primitive", THROWN),
    ("throw_undefined", THROWN),
    ("to_json_grows", SLOW_OR_LARGE),
    ("to_json_loops", TIME),
    ("to_json_pollutes", Returns(r#"{"a":1}"#)),
    ("to_json_throws", OUTPUT),
];

/// Half of the usual, so that it is full sooner.
const MEMORY_BYTES: usize = 64 << 20;

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hostile")
}

fn script(name: &str) -> Arc<ScriptSource> {
    let source = std::fs::read_to_string(folder().join(format!("{name}.js"))).unwrap();
    Arc::new(ScriptSource::new(name, source).unwrap())
}

#[test]
fn every_hostile_script_has_a_row() {
    let files: BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .collect();
    let rows: BTreeSet<String> = ROWS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(files, rows);
}

async fn attack(pool: &Pool, name: &str, end: End) -> Result<CompletedExecution, FailedExecution> {
    let mut asked = request_of("evil", script(name));
    asked.limits.memory_bytes = MEMORY_BYTES;
    asked.grants = Grants::NONE.with(CallKind::Publish);
    if name == "pollute_array_index" || name == "pollute_error" {
        asked.grants = Grants::NONE;
    }
    // Those that never end need not be waited for. What fills the memory must not be stopped by the clock.
    asked.limits.wall = match end {
        Fails([Timeout]) => Duration::from_millis(200),
        Fails([Timeout, ..]) => Duration::from_secs(2),
        _ => Duration::from_secs(30),
    };
    run(pool, &asked).await
}

/// What is wrong with how a script ended.
fn complaint(name: &str, end: End, found: &Result<CompletedExecution, FailedExecution>) -> Option<String> {
    match (end, found) {
        (Returns(expected), Ok(done)) if done.result.as_str() == expected => {}
        (Fails(classes), Err(failure)) if classes.contains(&failure.class) => {}
        (_, Ok(done)) => return Some(format!("{name}: returned {}, expected {end:?}", done.result.as_str())),
        (_, Err(failure)) => return Some(format!("{name}: {} {failure}, expected {end:?}", failure.class)),
    }
    let (logs, stats) = match found {
        Ok(done) => (&done.logs, done.stats),
        Err(failure) => {
            let name_and_message = limits::MESSAGE_CHARS_MAX + limits::ERROR_NAME_CHARS_MAX + 100;
            if failure.message.is_empty() || failure.message.chars().count() > name_and_message {
                return Some(format!("{name}: a message of {} bytes", failure.message.len()));
            }
            if failure.stack.len() > 3 * limits::STACK_CHARS_MAX {
                return Some(format!("{name}: a stack of {} bytes", failure.stack.len()));
            }
            (&failure.logs, failure.stats)
        }
    };
    let log_bytes: usize = logs.iter().map(|line| line.text.len()).sum();
    if log_bytes > 64 * 1024 || stats.peak_memory_bytes > MEMORY_BYTES as u64 {
        return Some(format!("{name}: {log_bytes} bytes of log, {stats:?}"));
    }
    None
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hostile_scripts_end_as_they_must_and_keep_nobody_waiting() {
    let pool = lab::pool(4);
    let mut queue = ROWS.iter();
    let mut attacks = tokio::task::JoinSet::new();
    let mut complaints = String::new();
    loop {
        // As many as there are places, so that a tenant that waits its turn would wait for them.
        while attacks.len() < 4 {
            let Some((name, end)) = queue.next() else { break };
            let pool = pool.clone();
            attacks.spawn(async move { (*name, *end, attack(&pool, name, *end).await) });
        }
        let served = run(&pool, &request("good", "return ctx.event.data.n + 1")).await;
        assert_eq!(served.expect("others are served").result.as_str(), "4");
        let Some(ended) = attacks.join_next().await else { break };
        let (name, end, found) = ended.unwrap();
        if let Some(complaint) = complaint(name, end, &found) {
            let _ = writeln!(complaints, "{complaint}");
        }
    }
    assert!(complaints.is_empty(), "\n{complaints}");

    let status = pool.status();
    assert_eq!((status.running, status.waiting), (0, 0), "{status:?}");
    for _ in 0..10 {
        let done = run(&pool, &request("evil", "return [1, 2].map((n) => n * 2)")).await.unwrap();
        assert_eq!(done.result.as_str(), "[2,4]");
    }
    let hosts = pool.status().hosts;
    pool.end().await;
    assert!(hosts.into_iter().all(|pid| !lab::is_alive(pid)));
}

#[tokio::test]
async fn what_one_script_leaves_the_next_in_the_same_host_does_not_find() {
    let pool = lab::pool(1);
    for _ in 0..3 {
        for name in
            ["leak_set", "pollute_object", "pollute_json", "pollute_error", "pollute_iterators", "leak_look"]
        {
            let end = ROWS.iter().find(|row| row.0 == name).unwrap().1;
            let found = attack(&pool, name, end).await;
            assert_eq!(complaint(name, end, &found), None);
        }
    }
    assert_eq!(pool.status().hosts_lost, 0);
    pool.end().await;
}
